"""Verify: what the backend really holds, and the ledger mended accordingly.

The rules: ``app/apply/README.md``, "Verify".

Everything that the backend can be asked about is read by page and staged, then compared in one transaction:

- what the ledger holds and the backend does not is taken out, so that the next plan adds it again if it is wanted;
- what is there with other fields, in another place or with another role is noted so, and updated by the next plan;
- what is there, was never ours and is wanted is adopted;
- what is there although the backend said that it is deleted is ours still, and deleted again by the next plan;
- what is there, was never ours and is not wanted is counted and named, and left alone.

Nothing is mended when reading breaks off in the middle. What a backend with core operations alone cannot tell (folders,
documents; of groups any backend tells the members only) stays as the ledger has it, and the report says so.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from sqlalchemy import Connection, Engine

from app.apply import observing
from app.apply.gate import Gate
from app.apply.progress import Progress
from app.client.capabilities import Capabilities
from app.client.client import BackendClient
from app.client.errors import BackendRefused, OperationMissing
from app.clock import Clock
from app.contract import operations as contract
from app.contract.documents import GetDocumentsRequest
from app.contract.errors import Status
from app.contract.folders import GetFoldersRequest
from app.contract.limits import IDS_PER_READ
from app.contract.organizations import GetOrganizationsRequest
from app.contract.users import GetUsersRequest, User
from app.database.engine import reading, writing
from app.database.statements import run
from app.ledger.ledger import mark_verified, move_on
from app.ledger.observed import (
    Observed,
    adopt,
    clear_observed,
    confirm_seen,
    drop_missing,
    drop_organizations,
    foreign,
    forget_deleted,
    set_digests,
    stage,
    take_back,
    take_in_places,
    to_compare,
)
from app.plan.desired import compute
from app.plan.rules import CONTAINERS, USER_KINDS, Kind
from app.plan.selection import Selection

ThingT = TypeVar("ThingT")

_PAGE_SIZE = 1000
_STAGED_AT_ONCE = 5000
_SIDE_BY_SIDE = 64
"""Containers whose users are read before any of them is staged: what bounds the memory."""


class VerifyStoppedError(Exception):
    """The run ends before everything was read; the gate says why."""


@dataclass(slots=True)
class VerifyReport:
    """What a verify found."""

    seen: int = 0
    """Items that were read back."""
    missing: int = 0
    """Ours, and not there any more."""
    changed: int = 0
    """Ours, and not as we left them."""
    adopted: int = 0
    undeleted: int = 0
    """There, although the backend had said that they are deleted."""
    foreign: dict[str, int] = field(default_factory=dict)
    """Never ours and not wanted, by kind."""
    foreign_named: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    """Kinds that the backend does not tell about."""

    def numbers(self) -> dict[str, int]:
        """How many items were seen, and what is wrong with how many."""
        return {
            "seen": self.seen,
            "missing": self.missing,
            "changed": self.changed,
            "adopted": self.adopted,
            "undeleted": self.undeleted,
            "foreign": sum(self.foreign.values()),
        }

    def to_wire(self) -> dict[str, object]:
        """The form in which a run's report holds it."""
        return {
            "seen": self.seen,
            "missing": self.missing,
            "changed": self.changed,
            "adopted": self.adopted,
            "undeleted": self.undeleted,
            "foreign": self.foreign,
            "foreignNamed": self.foreign_named,
            "notRead": self.not_read,
        }


@dataclass(frozen=True, slots=True)
class _Container:
    """Something whose users are read in one call, or by page."""

    kind: Kind
    """Of the users in it."""
    organization_id: str
    container_id: str = ""


class Verify:
    """Reads one backend back, once."""

    def __init__(
        self,
        engine: Engine,
        client: BackendClient,
        *,
        ledger_id: int,
        capabilities: Capabilities,
        gate: Gate,
        threads: int,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._client = client
        self._ledger_id = ledger_id
        self._capabilities = capabilities
        self._gate = gate
        self._threads = threads
        self._progress = progress
        self._clock = clock
        self._report = VerifyReport()
        self._unread: set[Kind] = {Kind.GROUP}

    def run(self, selection: Selection) -> VerifyReport:
        """Reads what is selected and mends the ledger.

        Raises ``ClientError`` when the backend does not answer, ``VerifyStoppedError`` when the run is to end.
        """
        with writing(self._engine) as connection:
            clear_observed(connection, self._ledger_id)
        try:
            if selection.user_ids:
                self._read_users(selection)
            else:
                self._read_everything(selection)
            with writing(self._engine) as connection:
                self._mend(connection, selection)
        finally:
            with writing(self._engine) as connection:
                clear_observed(connection, self._ledger_id)
        self._report.not_read = sorted(kind.value for kind in self._unread)
        return self._report

    def _read_everything(self, selection: Selection) -> None:
        self._stage(self._organizations(selection))
        ours = self._organizations_of_ours(selection)
        for organization_id in ours:
            self._stage(self._folders(organization_id))
            self._stage(self._documents(organization_id))
            self._stage(self._document_users(organization_id, None))
            self._stage_users([_Container(Kind.ORGANIZATION_USER, organization_id)], None)
            self._stage_users(self._folders_to_ask(organization_id), None)
            self._stage_users(self._groups_to_ask(organization_id), None)

    def _read_users(self, selection: Selection) -> None:
        """Only what hangs on some users, and only where the directory has something of theirs, or the ledger has or
        had."""
        with writing(self._engine) as connection:
            compute(connection, ledger_id=self._ledger_id, now=self._clock(), selection=selection)
            rows = run(
                connection,
                """
                SELECT DISTINCT kind, organization_id, CASE kind WHEN 'documentUser' THEN '' ELSE container_id END
                FROM (
                    SELECT kind, organization_id, container_id FROM desired
                    UNION SELECT l.kind, l.organization_id, l.container_id FROM ledger_item l
                    WHERE l.ledger_id = :ledger_id AND l.kind IN ({kinds}) AND {within}
                    UNION SELECT l.kind, l.organization_id, l.container_id FROM deleted_item l
                    WHERE l.ledger_id = :ledger_id AND l.kind IN ({kinds}) AND {within}
                ) AS places ORDER BY 1, 2, 3
                """,
                {"ledger_id": self._ledger_id, **_ids(selection)},
                kinds=", ".join(f"'{kind.value}'" for kind in USER_KINDS),
                within=_within(selection),
            ).all()
            run(connection, "DROP TABLE IF EXISTS desired")
        places = [
            _Container(Kind(str(kind)), str(organization), str(container)) for kind, organization, container in rows
        ]
        for user_ids in _in_parts(selection.user_ids, IDS_PER_READ):
            for place in places:
                if place.kind is Kind.DOCUMENT_USER:
                    self._stage(self._document_users(place.organization_id, user_ids))
            self._stage_users([place for place in places if place.kind is not Kind.DOCUMENT_USER], user_ids)

    def _stage(self, items: Iterable[Observed]) -> None:
        rest = iter(items)
        while chunk := list(islice(rest, _STAGED_AT_ONCE)):
            with writing(self._engine) as connection:
                stage(connection, self._ledger_id, chunk)
            self._report.seen += len(chunk)
            self._progress.advance(len(chunk))

    def _stage_users(self, containers: Iterable[_Container], user_ids: list[str] | None) -> None:
        """Several containers are read side by side."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="verify") as pool:
            for some in _in_parts(containers, _SIDE_BY_SIDE):
                for found in pool.map(lambda one: list(self._users(one, user_ids)), some):
                    self._stage(found)

    def _organizations(self, selection: Selection) -> Iterator[Observed]:
        ids = list(selection.organization_ids)
        requests = [GetOrganizationsRequest(organization_ids=some) for some in _in_parts(ids, IDS_PER_READ)] or [
            GetOrganizationsRequest(page_size=_PAGE_SIZE)
        ]
        for request in requests:
            self._ask()
            for answer in self._client.pages(contract.GET_ORGANIZATIONS, request):
                self._ask()
                yield from map(observing.organization, answer.data)

    def _organizations_of_ours(self, selection: Selection) -> list[str]:
        """Those that the backend has and the directory wants, or the ledger has or had: what is in others is nobody's
        concern."""
        within = "o.organization_id IN (@list(organization_ids))" if selection.organization_ids else "TRUE"
        with reading(self._engine) as connection:
            rows = run(
                connection,
                """
                SELECT o.item_id FROM observed_item o
                WHERE o.ledger_id = :ledger_id AND o.kind = 'organization' AND {within} AND (
                    EXISTS (SELECT 1 FROM access_organization a WHERE a.organization_id = o.item_id)
                    OR EXISTS (SELECT 1 FROM ledger_item l WHERE l.ledger_id = o.ledger_id
                        AND l.organization_id = o.item_id)
                    OR o.item_id IN (SELECT organization_id FROM deleted_item WHERE ledger_id = :ledger_id))
                ORDER BY o.item_id
                """,
                {"ledger_id": self._ledger_id, **_ids(selection)},
                within=within,
            )
            return [str(row[0]) for row in rows]

    def _folders(self, organization_id: str) -> Iterator[Observed]:
        if Kind.FOLDER in self._unread or self._capabilities.is_unsupported("get_folders"):
            self._unread.add(Kind.FOLDER)
            return
        self._ask()
        try:
            answer = self._client.call(contract.GET_FOLDERS, GetFoldersRequest(organization_id=organization_id))
        except OperationMissing:
            # The organization has just been read, so it is the operation that is not there.
            self._note_unsupported("get_folders", Kind.FOLDER)
            return
        yield from observing.folders(organization_id, answer.data)

    def _documents(self, organization_id: str) -> Iterator[Observed]:
        if Kind.DOCUMENT in self._unread or self._capabilities.is_unsupported("get_documents"):
            self._unread.add(Kind.DOCUMENT)
            return
        request = GetDocumentsRequest(organization_id=organization_id, page_size=_PAGE_SIZE)
        self._ask()
        try:
            for answer in self._client.pages(contract.GET_DOCUMENTS, request):
                self._ask()
                for seen in answer.data:
                    yield observing.document(organization_id, seen)
        except OperationMissing:
            self._note_unsupported("get_documents", Kind.DOCUMENT)

    def _document_users(self, organization_id: str, user_ids: list[str] | None) -> Iterator[Observed]:
        request = GetUsersRequest(
            organization_id=organization_id,
            all_documents=True,
            group_by_document_id=True,
            user_ids=user_ids,
            page_size=_PAGE_SIZE,
        )
        for data in self._user_pages(request):
            if isinstance(data, dict):
                for document_id, users in data.items():
                    for one in users:
                        yield observing.user(Kind.DOCUMENT_USER, organization_id, document_id, one)

    def _users(self, container: _Container, user_ids: list[str] | None) -> Iterator[Observed]:
        request = GetUsersRequest(
            organization_id=container.organization_id,
            folder_id=container.container_id if container.kind is Kind.FOLDER_USER else None,
            organization_user_group_ids=[container.container_id] if container.kind is Kind.GROUP_MEMBER else None,
            user_ids=user_ids,
            page_size=_PAGE_SIZE,
        )
        for data in self._user_pages(request):
            if isinstance(data, dict):
                continue
            for one in data:
                if container.kind is Kind.GROUP_MEMBER:
                    yield observing.member(container.organization_id, container.container_id, one)
                else:
                    yield observing.user(container.kind, container.organization_id, container.container_id, one)

    def _user_pages(self, request: GetUsersRequest) -> Iterator[list[User] | dict[str, list[User]]]:
        """What is not there has no users."""
        self._ask()
        try:
            for answer in self._client.pages(contract.GET_USERS, request):
                self._ask()
                yield answer.data
        except BackendRefused as error:
            if error.status is not Status.NOT_FOUND:
                raise

    def _folders_to_ask(self, organization_id: str) -> Iterator[_Container]:
        if Kind.FOLDER in self._unread:
            folder_ids = iter(self._known_containers(Kind.FOLDER_USER, organization_id))
        else:
            folder_ids = self._folders_seen(organization_id)
        for folder_id in folder_ids:
            yield _Container(Kind.FOLDER_USER, organization_id, folder_id)

    def _groups_to_ask(self, organization_id: str) -> Iterator[_Container]:
        ours = set(self._known_containers(Kind.GROUP_MEMBER, organization_id))
        with reading(self._engine) as connection:
            rows = run(
                connection,
                "SELECT organization_user_group_id FROM access_group WHERE organization_id = :organization_id",
                {"organization_id": organization_id},
            )
            ours |= {str(row[0]) for row in rows}
        for group_id in sorted(ours):
            yield _Container(Kind.GROUP_MEMBER, organization_id, group_id)

    def _known_containers(self, users: Kind, organization_id: str) -> list[str]:
        """Of what cannot be read itself: that which the ledger has, and that in which it has or had someone."""
        with reading(self._engine) as connection:
            rows = run(
                connection,
                """
                SELECT item_id FROM ledger_item
                WHERE ledger_id = :ledger_id AND kind = :container AND organization_id = :organization_id
                UNION SELECT container_id FROM ledger_item
                WHERE ledger_id = :ledger_id AND kind = :users AND organization_id = :organization_id
                UNION SELECT container_id FROM deleted_item
                WHERE ledger_id = :ledger_id AND kind = :users AND organization_id = :organization_id
                ORDER BY 1
                """,
                {
                    "ledger_id": self._ledger_id,
                    "container": CONTAINERS[users].value,
                    "users": users.value,
                    "organization_id": organization_id,
                },
            )
            return [str(row[0]) for row in rows]

    def _folders_seen(self, organization_id: str) -> Iterator[str]:
        after = ""
        while True:
            with reading(self._engine) as connection:
                rows = run(
                    connection,
                    """
                    SELECT item_id FROM observed_item WHERE ledger_id = :ledger_id AND kind = 'folder'
                    AND organization_id = :organization_id AND container_id = '' AND item_id > :after
                    ORDER BY item_id LIMIT 2000
                    """,
                    {"ledger_id": self._ledger_id, "organization_id": organization_id, "after": after},
                ).all()
            if not rows:
                return
            yield from (str(row[0]) for row in rows)
            after = str(rows[-1][0])

    def _mend(self, connection: Connection, selection: Selection) -> None:
        report, ledger_id = self._report, self._ledger_id
        within, scope = _within(selection), _ids(selection)
        if not selection.user_ids:
            report.missing += drop_organizations(connection, ledger_id, within, scope)
        for kind in USER_KINDS if selection.user_ids else Kind:
            if kind not in self._unread:
                report.missing += drop_missing(connection, ledger_id, kind.value, within, scope)
        report.changed += take_in_places(connection, ledger_id)
        compute(connection, ledger_id=ledger_id, now=self._clock(), selection=selection)
        report.adopted = adopt(connection, ledger_id)
        report.undeleted = take_back(connection, ledger_id)
        for kind in USER_KINDS if selection.user_ids else Kind:
            # Of what could not be read nothing is known. Groups never can be, and are never deleted either.
            if kind not in self._unread or kind is Kind.GROUP:
                forget_deleted(connection, ledger_id, kind.value, within, scope)
        run(connection, "DROP TABLE IF EXISTS desired")
        for kind in Kind:
            for page in to_compare(connection, ledger_id, kind.value):
                found = [
                    (
                        item,
                        item.wanted_digest if observing.same_fields(item.observed_payload, item.wanted_payload) else "",
                    )
                    for item in page
                ]
                report.changed += sum(bool(item.held_digest) and not digest for item, digest in found)
                set_digests(connection, ledger_id, found)
        confirm_seen(connection, ledger_id)
        report.foreign, report.foreign_named = foreign(connection, ledger_id)
        move_on(connection, ledger_id)
        if selection.is_everything:
            mark_verified(connection, ledger_id, self._clock())

    def _note_unsupported(self, operation: str, kind: Kind) -> None:
        self._capabilities.note_unsupported(operation)
        self._unread.add(kind)

    def _ask(self) -> None:
        """Called before every call."""
        if not self._gate.is_open():
            raise VerifyStoppedError


def _in_parts(things: Iterable[ThingT], size: int) -> Iterator[list[ThingT]]:
    rest = iter(things)
    while part := list(islice(rest, size)):
        yield part


def _within(selection: Selection) -> str:
    conditions = []
    if selection.organization_ids:
        conditions.append("l.organization_id IN (@list(organization_ids))")
    if selection.user_ids:
        conditions.append("l.item_id IN (@list(user_ids))")
    return " AND ".join(conditions) or "TRUE"


def _ids(selection: Selection) -> dict[str, object]:
    return {"organization_ids": selection.organizations_json, "user_ids": selection.users_json}
