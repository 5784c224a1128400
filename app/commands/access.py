"""``usher access``: lists what a user may open, or who may open a resource. It uses the same rules as the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import click

from app.commands.check import moment
from app.commands.frame import CommandError, Invocation, UsherCommand, json_option, pass_invocation
from app.commands.screen import print_note, show_json_lists, show_table
from app.foundation.clock import utc_text

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from app.access.decision.decide import DecisionPolicy
    from app.access.listing.page import AccessEntry, AccessPage
    from app.access.listing.resources import ResourceList
    from app.access.listing.users import UserList
    from app.access.records import ResourceKind

_PAGE_ROWS = 1000
_HEADINGS = ("TYPE", "ID", "ROLE", "RULE", "UNTIL", "NAME")


@click.command(cls=UsherCommand)
@click.argument("kind", metavar="KIND", type=click.Choice(["user", "organization", "folder", "document"]))
@click.argument("id_", metavar="ID")
@click.option("--organization", metavar="ORG", help="The organization whose resources are listed, or of the resource.")
@click.option(
    "--type",
    "types",
    type=click.Choice(["organization", "folder", "document"]),
    multiple=True,
    help="Of a user: only these types of resource. Repeatable.",
)
@click.option("--role", type=click.Choice(["viewer", "editor"]), help="Only access with exactly this role.")
@click.option("--at", metavar="TIME", type=moment, help="List access as of this time instead of now.")
@click.option("--limit", type=click.IntRange(1), help="List at most this many. Default: all.")
@json_option
@pass_invocation
def access(  # noqa: PLR0917 - click passes them by name
    invocation: Invocation,
    kind: Literal["user"] | ResourceKind,
    id_: str,
    organization: str | None,
    types: tuple[ResourceKind, ...],
    role: Literal["viewer", "editor"] | None,
    at: datetime | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """List what a user may open, or who may open a resource.

    KIND is user, organization, folder or document. Members whom an access type lets in are included. The order is that
    of types and ids.
    """
    from app.commands.bootstrap.application import application

    if organization is None and kind != "organization":
        raise click.UsageError(f"a {kind} needs --organization ORG")
    if types and kind != "user":
        raise click.UsageError("--type requires KIND user")
    if kind == "organization" and organization not in {None, id_}:
        raise click.UsageError("--organization must be ID if KIND is organization")
    _check_id("ID", id_)
    if organization is None:
        organization = id_
    _check_id("--organization", organization)
    settings = invocation.settings()
    with application(settings) as parts:
        query = _query(kind, id_, organization, types=types, role=role, at=at or parts.clock())
        listing = _Listing(parts.engine, settings.provider.policy, query, limit)
        if as_json:
            head = {"userId": id_} if kind == "user" else {"type": kind, "resourceId": id_}
            name = "resources" if kind == "user" else "users"
            show_json_lists(head | listing.head, {name: map(_wire, listing)}, listing.tail)
        else:
            for line in listing.remarks:
                print_note(line)
            for page in listing.pages():
                show_table(_HEADINGS, [_row(entry) for entry in page.entries])
    if listing.has_more:
        print_note(f"more: --limit {limit} left out the rest")
    if listing.has_changed:
        print_note("the directory changed meanwhile: run the command again for a list of one revision")


def _query(
    kind: Literal["user"] | ResourceKind,
    id_: str,
    organization_id: str,
    *,
    types: tuple[ResourceKind, ...],
    role: Literal["viewer", "editor"] | None,
    at: datetime,
) -> ResourceList | UserList:
    from app.access.listing.resources import RESOURCE_TYPES, ResourceList
    from app.access.listing.users import UserList
    from app.access.records import AccessRole

    with_role = None if role is None else AccessRole(role)
    if kind == "user":
        return ResourceList(
            organization_id=organization_id, user_id=id_, types=types or RESOURCE_TYPES, role=with_role, at=at
        )
    return UserList(organization_id=organization_id, type=kind, resource_id=id_, role=with_role, at=at)


def _check_id(name: str, id_: str) -> None:
    """Raises ``CommandError`` for an id that the permission provider rejects. ``name``: the argument or option."""
    from app.contract.permission_call import id_problem

    if problem := id_problem(id_):
        raise CommandError(f"{name}: {problem}")


class _Listing:
    """A list that is read page by page, each in a transaction of its own."""

    def __init__(
        self, engine: Engine, policy: DecisionPolicy, query: ResourceList | UserList, limit: int | None
    ) -> None:
        """Reads the first page. Raises ``CommandError`` for an unknown user or resource."""
        from app.access.decision.decide import Rule

        self._engine = engine
        self._policy = policy
        self._query = query
        self._remaining = limit
        self.has_more = False
        """Whether the limit cut the list."""
        self.has_changed = False
        """Whether a later page was read from another revision."""
        self.first = first = self._read()
        if first.revision == 0:
            raise CommandError("the directory was never read: run usher directory refresh, or a sync")
        unknown = {Rule.ORGANIZATION_UNKNOWN, Rule.USER_UNKNOWN, Rule.RESOURCE_UNKNOWN}
        if first.denied is not None and first.denied.rule in unknown:
            raise CommandError(first.denied.reason)

    @property
    def remarks(self) -> list[str]:
        """Lines before the entries."""
        denied, openness = self.first.denied, self.first.openness
        return [*([] if denied is None else [denied.reason]), *([] if openness is None else [openness.sentence])]

    @property
    def head(self) -> dict[str, object]:
        """The fields before the entries."""
        from app.service.admin.listing_wire import openness_to_wire

        head: dict[str, object] = {"organizationId": self._query.organization_id, "at": utc_text(self._query.at)}
        if (denied := self.first.denied) is not None:
            head["denied"] = {"rule": denied.rule.value, "reason": denied.reason}
        return {**head, **openness_to_wire(self.first.openness)}

    def tail(self) -> Mapping[str, object]:
        """The fields after the entries."""
        return {"revision": self.first.revision, "revisionChanged": self.has_changed, "hasMore": self.has_more}

    def pages(self) -> Iterator[AccessPage]:
        """The pages that have entries. A list without any has none."""
        page = self.first
        while page.entries:
            yield page
            self.has_changed |= page.revision != self.first.revision
            if self._remaining is not None:
                self._remaining -= len(page.entries)
            self.has_more = page.has_more and self._remaining == 0
            if not page.has_more or self.has_more:
                return
            page = self._read(page.entries[-1].kind, page.entries[-1].item_id)

    def __iter__(self) -> Iterator[AccessEntry]:
        for page in self.pages():
            yield from page.entries

    def _read(self, *after: str) -> AccessPage:
        from app.foundation.database.engine import reading

        with reading(self._engine) as connection:
            limit = min(_PAGE_ROWS, self._remaining or _PAGE_ROWS)
            return self._query.page(connection, self._policy, after=after, limit=limit)


def _wire(entry: AccessEntry) -> dict[str, object]:
    wire: dict[str, object] = {
        "type": entry.kind,
        "id": entry.item_id,
        "name": entry.name,
        "accessRole": entry.access_role.value,
        "rule": entry.rule.value,
    }
    if entry.expires_at is not None:
        wire["expiresAt"] = utc_text(entry.expires_at)
    return wire


def _row(entry: AccessEntry) -> Sequence[str]:
    until = "" if entry.expires_at is None else utc_text(entry.expires_at)
    return (entry.kind, entry.item_id, entry.access_role.value, entry.rule.value, until, entry.name)
