"""``usher check``: shows and explains one decision. It uses the same rules as the service."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import click

from app.commands.frame import CommandError, Invocation, UsherCommand, json_option, pass_invocation
from app.commands.screen import coloured, print_result, show_json
from app.foundation.clock import from_epoch_ms, parse_time, utc_text
from app.foundation.text import printable

if TYPE_CHECKING:
    from app.access.decision.decide import QuestionLike
    from app.access.decision.explain import Explanation
    from app.access.origins import Origins

EXIT_DENIED = 4


def moment(value: str) -> datetime:
    """The type of ``--at``."""
    try:
        return parse_time(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}") from error


def _field_value(value: str) -> tuple[str, str]:
    field, equals, text = value.partition("=")
    if not field or not equals:
        raise click.BadParameter(f"{value!r}: write FIELD=VALUE")
    return field, text


@click.command(cls=UsherCommand)
@click.argument("user")
@click.argument("type_", metavar="TYPE", type=click.Choice(["organization", "folder", "document", "context"]))
@click.argument("id_", metavar="ID")
@click.option("--organization", metavar="ORG", help="The organization of the resource.")
@click.option("--context", "context_", metavar="FIELD=VALUE", type=_field_value, multiple=True, help="Repeatable.")
@click.option("--at", metavar="TIME", type=moment, help="Decide as of this time instead of now.")
@click.option(
    "--explain", "explained", is_flag=True, help="Also print the records behind the decision and their origin."
)
@json_option
@pass_invocation
@click.pass_context
def check(  # noqa: PLR0917 - click passes them by name
    context: click.Context,
    invocation: Invocation,
    user: str,
    type_: str,
    id_: str,
    organization: str | None,
    context_: tuple[tuple[str, str], ...],
    at: datetime | None,
    explained: bool,
    as_json: bool,
) -> None:
    """Show what a user may do with a resource, and why.

    Decides whether USER has access to the organization, folder, document or context that TYPE and ID name. For a
    context, ID is its document. Exit code 0: allowed, 4: denied.
    """
    from app.access.decision.explain import explain
    from app.access.origins import load_origins
    from app.access.shared_aliases import with_shared_aliases
    from app.access.sql_view import SqlView
    from app.commands.bootstrap.application import application
    from app.foundation.database.engine import reading

    if organization is None and type_ != "organization":
        raise click.UsageError(f"a {type_} needs --organization ORG")
    if context_ and type_ != "context":
        raise click.UsageError("--context requires TYPE context")
    if len(dict(context_)) < len(context_):
        raise click.UsageError("--context names a field twice; check one value at a time")
    request = _question(user, type_, id_, organization, dict(context_))
    settings = invocation.settings()
    with application(settings) as parts:
        policy = settings.provider.policy
        with reading(parts.engine) as connection:
            view = SqlView(connection)
            if view.revision == 0:
                raise CommandError("the directory was never read: run usher directory refresh, or a sync")
            explanation = explain(view, request, at or parts.clock(), policy)
            explanation = with_shared_aliases(connection, request, explanation)
        origins = load_origins(parts.engine, explanation.records) if explained else None
    if as_json:
        show_json(to_wire(request, explanation, origins))
    else:
        _show(explanation, origins)
    context.exit(0 if explanation.decision.has_access else EXIT_DENIED)


def _question(user: str, type_: str, id_: str, organization: str | None, context: Mapping[str, str]) -> QuestionLike:
    """Raises ``CommandError`` for ids that the permission provider rejects: empty, too long or invalid text."""
    from app.contract.permission_call import MalformedQuestion, parse_question

    resource = {"type": type_, "id": id_, "organizationId": organization, "context": {"access": context}}
    question = parse_question({"userId": user, "resource": resource})
    if isinstance(question, MalformedQuestion):
        raise CommandError(question.error)
    return question


def to_wire(request: QuestionLike, explanation: Explanation, origins: Origins | None) -> dict[str, object]:
    """As the permission-provider answer, with ISO 8601 times, the reason, and the records behind it in ``origins``."""
    from app.access.origins import path_with_origins

    decision = explanation.decision
    wire: dict[str, object] = {
        "userId": request.user_id,
        "resourceId": request.resource_id,
        "type": request.type,
        "organizationId": request.organization_id,
        "hasAccess": decision.has_access,
    }
    if decision.access_role is not None:
        wire["accessRole"] = decision.access_role.value
    if decision.expires_at is not None:
        wire["expiresAt"] = utc_text(decision.expires_at)
    wire["reason"] = explanation.reason
    if origins is not None:
        wire["path"] = [_with_readable_time(record) for record in path_with_origins(explanation, origins)]
    return wire


def _with_readable_time(record: Mapping[str, object]) -> dict[str, object]:
    expires_at = record.get("expiresAt")
    return dict(record) | ({"expiresAt": utc_text(from_epoch_ms(expires_at))} if isinstance(expires_at, int) else {})


def _show(explanation: Explanation, origins: Origins | None) -> None:
    outcome = "allowed" if explanation.decision.has_access else "denied"
    print_result(coloured(outcome, outcome))
    print_result(printable(explanation.reason))
    if origins is None:
        return
    for number, (record, wire) in enumerate(
        zip(explanation.records, map(_with_readable_time, explanation.path), strict=True), 1
    ):
        fields = ", ".join(f"{name} {_plain(value)}" for name, value in wire.items() if name != "kind")
        print_result(f"  {number}. {wire['kind']}: {printable(fields)}")
        rows = origins.get(record.key, ())
        for row in rows:
            provided = f" provides {', '.join(row.provides) or 'nothing more'}" if len(rows) > 1 else ""
            print_result(f"     {printable(f'{row}{provided}')}")


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
