"""A directory and a backend in miniature, on a real database, for the tests of planning.

``World`` holds the access model, a ledger and plans; ``Backend`` does what the contract says each operation does, and
the ledger is kept as ``app.plan.differences`` demands of whoever applies a plan. Both are as plain as can be.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.engine import Connection

from app.database.engine import open_engine, reading, writing
from app.database.statements import run
from app.ledger.ledger import move_on, open_ledger
from app.plan.differences import make_plan
from app.plan.rules import SETTLES
from app.plan.selection import EVERYTHING, Selection
from app.plan.settings import LimitSettings
from app.plan.stored import Plan, PlanItem, read_items, skip_dependents, still_needed_below
from app.store import access_tables as access
from app.store import sync_tables as sync
from app.store.base import METADATA
from tests.tables import make_tables

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)

Rows = list[dict[str, object]]
Key = tuple[str, str, str, str]


def _table(row_class: type) -> object:
    return row_class.__table__


ACCESS = {
    "organizations": _table(access.OrganizationRow),
    "users": _table(access.UserRow),
    "memberships": _table(access.MembershipRow),
    "groups": _table(access.GroupRow),
    "group_members": _table(access.GroupMemberRow),
    "folders": _table(access.FolderRow),
    "documents": _table(access.DocumentRow),
    "grants": _table(access.GrantRow),
}
LEDGER_ITEM = _table(sync.LedgerItemRow)


@dataclass
class Directory:
    """What the directory says; each method adds a record and gives the directory, so that they chain."""

    tables: dict[str, Rows] = field(default_factory=lambda: {name: [] for name in ACCESS})

    def organization(self, organization_id, access_type="organizationPrivate", disabled=False, name="n"):
        return self._add(
            "organizations",
            organization_id=organization_id,
            access_type=access_type,
            disabled=disabled,
            **_content("organizationId", organization_id, name),
        )

    def user(self, user_id, disabled=False, name="n"):
        return self._add("users", user_id=user_id, disabled=disabled, **_content("userId", user_id, name))

    def member(self, organization_id, user_id, access_role="editor", expires_at=None):
        return self._add(
            "memberships",
            organization_id=organization_id,
            user_id=user_id,
            access_role=access_role,
            expires_at=expires_at,
        )

    def group(self, organization_id, group_id, users=(), groups=(), name="n"):
        self._add(
            "groups",
            organization_id=organization_id,
            organization_user_group_id=group_id,
            **_content("organizationUserGroupId", group_id, name),
        )
        for user_id, member_group_id in [*((user, "") for user in users), *(("", group) for group in groups)]:
            self._add(
                "group_members",
                organization_id=organization_id,
                organization_user_group_id=group_id,
                user_id=user_id,
                member_group_id=member_group_id,
            )
        return self

    def folder(self, organization_id, folder_id, parent="", access_type="", name="n"):
        return self._add(
            "folders",
            organization_id=organization_id,
            folder_id=folder_id,
            parent_folder_id=parent,
            access_type=access_type,
            **_content("folderId", folder_id, name),
        )

    def document(self, organization_id, document_id, folder="", access_type="", name="n"):
        return self._add(
            "documents",
            organization_id=organization_id,
            document_id=document_id,
            folder_id=folder,
            access_type=access_type,
            **_content("documentId", document_id, name),
        )

    def grant(
        self, organization_id, *, folder="", document="", user="", group="", access_role="editor", expires_at=None
    ):
        return self._add(
            "grants",
            organization_id=organization_id,
            folder_id=folder,
            document_id=document,
            user_id=user,
            organization_user_group_id=group,
            access_role=access_role,
            expires_at=expires_at,
        )

    def _add(self, table: str, **row: object) -> "Directory":
        self.tables[table].append(row)
        return self


def _content(id_field: str, identity: str, name: str) -> dict[str, object]:
    return {"payload": json.dumps({id_field: identity, "name": name}), "digest": f"{identity}={name}"}


class RefusedError(Exception):
    """The backend will not do that."""


def _allow(condition: object, item: PlanItem) -> None:
    if not condition:
        raise RefusedError(f"refused: {item}")


@dataclass
class Backend:
    """What a backend holds, and what each operation makes of it."""

    organizations: dict[str, dict[str, object]] = field(default_factory=dict)
    folders: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    documents: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    groups: set[tuple[str, str]] = field(default_factory=set)
    users: dict[tuple[str, str, str, str], tuple[str, str]] = field(default_factory=dict)
    """(kind, organization, container, user) → digest and role"""
    members: set[tuple[str, str, str]] = field(default_factory=set)

    def do(self, item: PlanItem) -> str:
        """Does one item; an empty answer, or ``already exists``."""
        if item.operation not in {"add_organizations", "delete_organizations"}:
            _allow(item.action == "delete" or item.organization_id in self.organizations, item)
        return getattr(self, f"_{item.operation}")(item) or ""

    def _add_organizations(self, item: PlanItem) -> str:
        known = item.item_id in self.organizations
        self.organizations.setdefault(item.item_id, {"disabled": False})["digest"] = item.digest
        return "already exists" if known else ""

    def _update_organizations(self, item: PlanItem) -> None:
        self.organizations[item.item_id]["digest"] = item.digest

    def _disable_organizations(self, item: PlanItem) -> None:
        self.organizations[item.item_id]["disabled"] = item.scope == "[true]"

    def _delete_organizations(self, item: PlanItem) -> None:
        gone = item.item_id
        self.organizations.pop(gone, None)
        for mapping in (self.folders, self.documents):
            _drop(mapping, lambda key: key[0] == gone)
        _drop(self.users, lambda key: key[1] == gone)
        self.groups = {key for key in self.groups if key[0] != gone}
        self.members = {key for key in self.members if key[0] != gone}

    def _add_folder(self, item: PlanItem) -> str:
        key = (item.organization_id, item.item_id)
        if key in self.folders:
            self._update_folder(item)
            return "already exists"
        self._place(item)
        self.folders[key] = {"digest": item.digest, "parent": item.parent_id, "type": item.access_type}
        return ""

    def _update_folder(self, item: PlanItem) -> None:
        self._place(item)
        _allow((item.organization_id, item.item_id) in self.folders, item)
        self.folders[item.organization_id, item.item_id] |= {"digest": item.digest, "parent": item.parent_id}

    def _place(self, item: PlanItem) -> None:
        """The parent exists and does not lie in the folder itself."""
        above = item.parent_id
        while above:
            _allow(above != item.item_id and (item.organization_id, above) in self.folders, item)
            above = self.folders[item.organization_id, above]["parent"]

    def _update_folder_access(self, item: PlanItem) -> None:
        _allow(item.access_type or item.parent_id, item)
        _allow((item.organization_id, item.item_id) in self.folders, item)
        self.folders[item.organization_id, item.item_id]["type"] = item.access_type

    def _delete_folder(self, item: PlanItem) -> None:
        organization_id = item.organization_id
        gone = {item.item_id}
        while (
            more := {
                key[1] for key, folder in self.folders.items() if key[0] == organization_id and folder["parent"] in gone
            }
            - gone
        ):
            gone |= more
        documents = {
            key[1]
            for key, document in self.documents.items()
            if key[0] == organization_id and document["folder"] in gone
        }
        _drop(self.folders, lambda key: key[0] == organization_id and key[1] in gone)
        _drop(self.users, lambda key: key[:2] == ("folderUser", organization_id) and key[2] in gone)
        for document_id in documents:
            self._drop_document(organization_id, document_id)

    def _drop_document(self, organization_id: str, document_id: str) -> None:
        self.documents.pop((organization_id, document_id), None)
        _drop(self.users, lambda key: key[:3] == ("documentUser", organization_id, document_id))

    def _add_documents(self, item: PlanItem) -> str:
        key = (item.organization_id, item.item_id)
        if key in self.documents:
            self.documents[key]["digest"] = item.digest
            return "already exists"
        _allow(not item.parent_id or (item.organization_id, item.parent_id) in self.folders, item)
        self.documents[key] = {"digest": item.digest, "folder": item.parent_id, "type": ""}
        return ""

    def _update_documents(self, item: PlanItem) -> None:
        _allow((item.organization_id, item.item_id) in self.documents, item)
        self.documents[item.organization_id, item.item_id]["digest"] = item.digest

    def _move_documents(self, item: PlanItem) -> None:
        _allow((item.organization_id, item.item_id) in self.documents, item)
        _allow(not item.parent_id or (item.organization_id, item.parent_id) in self.folders, item)
        self.documents[item.organization_id, item.item_id]["folder"] = item.parent_id

    def _update_document_access(self, item: PlanItem) -> None:
        _allow(item.access_type and (item.organization_id, item.item_id) in self.documents, item)
        self.documents[item.organization_id, item.item_id]["type"] = item.access_type

    def _delete_documents(self, item: PlanItem) -> None:
        self._drop_document(item.organization_id, item.item_id)

    def _add_groups(self, item: PlanItem) -> str:
        known = (item.organization_id, item.item_id) in self.groups
        self.groups.add((item.organization_id, item.item_id))
        return "already exists" if known else ""

    def _add_users(self, item: PlanItem) -> str:
        key = (item.kind, item.organization_id, item.container_id, item.item_id)
        known = key in self.users
        if item.kind == "folderUser":
            _allow((item.organization_id, item.container_id) in self.folders, item)
        if item.kind == "documentUser":
            _allow((item.organization_id, item.container_id) in self.documents, item)
        self.users[key] = (item.digest, item.access_role)
        return "already exists" if known else ""

    def _update_users(self, item: PlanItem) -> None:
        key = (item.kind, item.organization_id, item.container_id, item.item_id)
        _allow(key in self.users, item)
        self.users[key] = (item.digest, item.access_role)

    def _delete_users(self, item: PlanItem) -> None:
        if item.kind != "organizationUser":
            self.users.pop((item.kind, item.organization_id, item.container_id, item.item_id), None)
            return
        _drop(self.users, lambda key: key[1] == item.organization_id and key[3] == item.item_id)
        self.members = {key for key in self.members if (key[0], key[2]) != (item.organization_id, item.item_id)}

    def _add_users_to_groups(self, item: PlanItem) -> None:
        _allow((item.organization_id, item.container_id) in self.groups, item)
        self.members.add((item.organization_id, item.container_id, item.item_id))

    def _delete_users_from_groups(self, item: PlanItem) -> None:
        if item.kind == "group":
            self.members = {key for key in self.members if key[:2] != (item.organization_id, item.item_id)}
        else:
            self.members.discard((item.organization_id, item.container_id, item.item_id))

    def type_in_force(self, organization_id: str, kind: str, identity: str) -> str:
        """The access type that counts for a folder or document here."""
        things, above = (self.folders, "parent") if kind == "folder" else (self.documents, "folder")
        thing = things[organization_id, identity]
        if thing["type"] or not thing[above]:
            return thing["type"]
        return self.type_in_force(organization_id, "folder", thing[above])


def _drop(mapping: dict, gone: Callable[[tuple], bool]) -> None:
    for key in [key for key in mapping if gone(key)]:
        del mapping[key]


@dataclass
class World:
    """One database with an access model, a ledger and plans."""

    engine: Engine
    ledger_id: int
    revision: int = 0
    backend: Backend = field(default_factory=Backend)
    """What plans are applied to where a test brings no other."""

    def says(self, directory: Directory) -> None:
        """The directory now says this and nothing else."""
        self.revision += 1
        with writing(self.engine) as connection:
            for name, table in ACCESS.items():
                connection.execute(delete(table))
                if directory.tables[name]:
                    connection.execute(insert(table), directory.tables[name])
            connection.execute(
                insert(_table(access.RevisionRow)).values(revision=self.revision, created_at=NOW_MS, changes="{}")
            )

    def plan(
        self,
        *,
        now: datetime = NOW,
        limits: LimitSettings | None = None,
        grace: int = 0,
        selection: Selection = EVERYTHING,
        approving: str | None = None,
    ) -> Plan:
        """A plan; without ``limits`` they are lifted."""
        return make_plan(
            self.engine,
            ledger_id=self.ledger_id,
            now=now,
            limits=limits or LimitSettings(),
            grace=timedelta(seconds=grace),
            selection=selection,
            allow_deletes=limits is None,
            approving=approving,
        )

    def items(self, plan: Plan, *statuses: str, covered: bool = True) -> list[PlanItem]:
        """The plan's items with one of these statuses (any, without), in order."""
        every = ("planned", "done", "failed", "held", "discarded", "waiting", "parked", "skipped", "cancelled")
        with reading(self.engine) as connection:
            return read_items(connection, plan.plan_id, statuses=statuses or every, limit=100_000, covered=covered)

    def sent(self, plan: Plan) -> list[tuple[str, str, str, str]]:
        """Operation, scope, container and item of everything that is sent, in order."""
        return [
            (item.operation, item.scope, item.container_id, item.item_id)
            for item in self.items(plan, "planned", covered=False)
        ]

    def ledger(self) -> dict[Key, dict[str, object]]:
        """The ledger's rows by key."""
        with reading(self.engine) as connection:
            rows = connection.execute(select(LEDGER_ITEM).where(LEDGER_ITEM.c.ledger_id == self.ledger_id)).all()
        return {(row.kind, row.organization_id, row.container_id, row.item_id): dict(row._mapping) for row in rows}

    def apply(
        self, plan: Plan, backend: Backend | None = None, outcome: Callable[[PlanItem], str] = lambda item: "done"
    ) -> None:
        """Sends the plan to the backend and keeps the ledger by the rules that ``app.plan.differences`` states.

        ``outcome`` says what becomes of each call: ``done``, ``failed`` (the backend did nothing and says so), ``lost``
        (it did nothing, and nobody knows) or ``unanswered`` (it did it, and nobody knows).
        """
        backend = backend or self.backend
        with writing(self.engine) as connection:
            while waiting := read_items(connection, plan.plan_id, limit=100_000):
                for item in [item for item in waiting if item.phase == waiting[0].phase]:
                    self._apply(connection, backend, item, outcome(item))
                skip_dependents(connection, self.ledger_id, plan.plan_id)
                follow_coverers(connection, plan.plan_id)
            move_on(connection, self.ledger_id)

    def _apply(self, connection: Connection, backend: Backend, item: PlanItem, outcome: str) -> None:
        if item.action == "delete" and (needed := still_needed_below(connection, self.ledger_id, item)):
            _settle(connection, item, "skipped", needed)
            return
        if outcome == "failed":
            _settle(connection, item, "failed", "refused")
            return
        try:
            answer = backend.do(item) if outcome != "lost" else ""
        except RefusedError as error:
            _settle(connection, item, "failed", str(error))
            return
        known = outcome == "done"
        if item.action == "delete":
            self._forget(connection, item, certain=known)
        else:
            self._remember(connection, item, already=answer == "already exists", certain=known)
        _settle(connection, item, "done" if known else "failed", answer)
        if known and item.action != "delete":
            self._make_certain(connection, item, answer)

    def _forget(self, connection: Connection, item: PlanItem, *, certain: bool) -> None:
        plan_item = _table(sync.PlanItemRow)
        covered = connection.execute(
            select(plan_item).where(
                plan_item.c.plan_id == item.plan_id,
                (plan_item.c.ordinal == item.ordinal) | (plan_item.c.covered_by == item.ordinal),
            )
        ).all()
        for row in covered:
            if certain:
                connection.execute(delete(LEDGER_ITEM).where(*self._is(row)))
            else:
                connection.execute(update(LEDGER_ITEM).where(*self._is(row)).values(certain=False))
        if item.kind == "organizationUser":
            connection.execute(
                update(LEDGER_ITEM)
                .where(
                    LEDGER_ITEM.c.ledger_id == self.ledger_id,
                    LEDGER_ITEM.c.kind.in_(["folderUser", "documentUser", "groupMember"]),
                    LEDGER_ITEM.c.organization_id == item.organization_id,
                    LEDGER_ITEM.c.item_id == item.item_id,
                )
                .values(certain=False)
            )

    def _remember(self, connection: Connection, item: PlanItem, *, already: bool, certain: bool) -> None:
        known = connection.execute(select(LEDGER_ITEM).where(*self._is(item))).one_or_none()
        columns = SETTLES[item.operation]
        if already:
            columns = {"add_folder": ("digest", "parent_id")}.get(item.operation, ("digest", "access_role"))
        values = {column: getattr(item, column) for column in columns}
        if known is None:
            key = {name: getattr(item, name) for name in ("kind", "organization_id", "container_id", "item_id")}
            row = {"digest": "", "parent_id": "", "access_type": "", "access_role": "", "disabled": False}
            several = item.kind in {"organization", "folder", "document"}
            connection.execute(
                insert(LEDGER_ITEM).values(
                    ledger_id=self.ledger_id, **key, **(row | values), certain=certain and not (already and several)
                )
            )
        elif certain:
            connection.execute(update(LEDGER_ITEM).where(*self._is(item)).values(values))
        else:
            connection.execute(update(LEDGER_ITEM).where(*self._is(item)).values(certain=False))

    def _make_certain(self, connection: Connection, item: PlanItem, answer: str) -> None:
        siblings = _table(sync.PlanItemRow)
        others = connection.execute(
            select(siblings.c.operation, siblings.c.status).where(
                siblings.c.plan_id == item.plan_id,
                siblings.c.kind == item.kind,
                siblings.c.organization_id == item.organization_id,
                siblings.c.container_id == item.container_id,
                siblings.c.item_id == item.item_id,
            )
        ).all()
        several = item.kind in {"organization", "folder", "document"}
        if all(other.status == "done" for other in others) and (
            not several or answer != "already exists" or len(others) > 1
        ):
            connection.execute(update(LEDGER_ITEM).where(*self._is(item)).values(certain=True))

    def _is(self, item: object) -> list[object]:
        names = ("kind", "organization_id", "container_id", "item_id")
        return [
            LEDGER_ITEM.c.ledger_id == self.ledger_id,
            *(LEDGER_ITEM.c[name] == getattr(item, name) for name in names),
        ]


def _settle(connection: Connection, item: PlanItem, status: str, message: str) -> None:
    plan_item = _table(sync.PlanItemRow)
    connection.execute(
        update(plan_item)
        .where(plan_item.c.plan_id == item.plan_id, plan_item.c.ordinal == item.ordinal)
        .values(status=status, message=message)
    )


@pytest.fixture
def world(database_url: str) -> Iterator[World]:
    """An empty world."""
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    ledger = open_ledger(engine, "http://backend.example", "key", lambda: NOW)
    yield World(engine, ledger.ledger_id)
    engine.dispose()


@pytest.fixture
def new_directory() -> type[Directory]:
    return Directory


@pytest.fixture
def new_backend() -> type[Backend]:
    return Backend


@pytest.fixture
def now() -> datetime:
    """The moment at which plans are made where a test says no other."""
    return NOW


@pytest.fixture
def now_ms() -> int:
    return NOW_MS


def follow_coverers(connection: Connection, plan_id: str) -> int:
    """Gives covered deletes the status and message of the delete that covers them; gives how many changed.

    Needed when a delete was skipped, failed or cancelled; when it is done, apply also removes their rows of the ledger.
    """
    return run(
        connection,
        """
        UPDATE plan_item SET status = coverer.status, message = coverer.message
        FROM plan_item AS coverer
        WHERE plan_item.plan_id = :plan_id AND plan_item.covered_by IS NOT NULL AND coverer.plan_id = :plan_id
          AND coverer.ordinal = plan_item.covered_by AND coverer.status <> plan_item.status
        """,
        {"plan_id": plan_id},
    ).rowcount
