"""The world of planning tests: access model, ledger and plans on a real database, and a backend in memory.

Records are written directly into the access model, without a source and a refresh. Plans are applied by the real
applier and the real client.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from threading import Event
from typing import Any, Self

import pytest
from pydantic import SecretStr
from sqlalchemy import Connection, Engine, Table, delete, event, insert, select, update

from app.access import tables as access
from app.client.client import BackendClient
from app.client.errors import BackendRefused
from app.client.response import ItemAnswer
from app.client.retry import RetryPolicy
from app.client.settings import BackendSettings
from app.contract.base import Request
from app.contract.errors import Status
from app.foundation.clock import epoch_ms
from app.foundation.database.engine import open_engine, reading, writing
from app.foundation.database.tables import METADATA
from app.sync.apply.applier import Applier
from app.sync.apply.calls import CallSender
from app.sync.apply.capabilities import Capabilities
from app.sync.apply.gate import Gate
from app.sync.apply.requests import BackendWrites
from app.sync.apply.sender import BatchSender
from app.sync.ledger.ledger import open_ledger
from app.sync.ledger.settlement import cancel_unsent
from app.sync.ledger.tables import LedgerItemRow
from app.sync.plan.planner import PlanRequest, make_plan
from app.sync.plan.selection import EVERYTHING, Retry, Selection
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import Plan, PlanItem
from app.sync.plan.tables import PlanItemRow
from app.sync.runs.tables import RunRow
from tests.progress import QuietProgress
from tests.tables import make_tables
from tests.worlds.backend import Backend
from tests.worlds.clock import NOON, SimulatedTime
from tests.wsgi import WsgiAdapter

NOON_MS = epoch_ms(NOON)

Rows = list[dict[str, Any]]
Key = tuple[str, str, str, str]


def plan_items(connection: Connection, plan_id: str, *statuses: str, covered: bool = True) -> list[PlanItem]:
    """The items of a plan with one of these statuses (any, without), in order. ``covered``: with covered ones."""
    query = select(*[PLAN_ITEM.c[name] for name in PlanItem.__dataclass_fields__]).order_by(PLAN_ITEM.c.ordinal)
    query = query.where(PLAN_ITEM.c.plan_id == plan_id)
    if statuses:
        query = query.where(PLAN_ITEM.c.status.in_(statuses))
    if not covered:
        query = query.where(PLAN_ITEM.c.covered_by.is_(None))
    return [PlanItem(**row._asdict()) for row in connection.execute(query)]


def _table(row_class: Any) -> Table:
    table: Table = row_class.__table__
    return table


ACCESS = {
    "organizations": access.ACCESS_TABLES["organization"],
    "users": access.ACCESS_TABLES["user"],
    "memberships": access.ACCESS_TABLES["membership"],
    "groups": access.ACCESS_TABLES["group"],
    "group_members": access.ACCESS_TABLES["groupMember"],
    "folders": access.ACCESS_TABLES["folder"],
    "documents": access.ACCESS_TABLES["document"],
    "grants": access.ACCESS_TABLES["grant"],
}
LEDGER_ITEM = _table(LedgerItemRow)
PLAN_ITEM = _table(PlanItemRow)
RUN = _table(RunRow)

SETTINGS = BackendSettings(
    base_url="http://backend.example", api_key=SecretStr("key"), auth_token=SecretStr("token"), max_in_flight=1
)
ONE_TRY = RetryPolicy(repeats=0, max_waiting=0)
"""Other tests cover retries; here failed items are planned again."""


@dataclass
class Directory:
    """The records of a directory; each method adds a record and returns the directory."""

    tables: dict[str, Rows] = field(default_factory=lambda: {name: [] for name in ACCESS})

    def organization(
        self, organization_id: str, access_type: str = "organizationPrivate", *, disabled: bool = False, name: str = "n"
    ) -> Self:
        return self._add(
            "organizations",
            organization_id=organization_id,
            access_type=access_type,
            disabled=disabled,
            **_content(organization_id, organizationName=name),
        )

    def user(self, user_id: str, *, disabled: bool = False, name: str = "n") -> Self:
        return self._add(
            "users", user_id=user_id, disabled=disabled, **_content(user_id, name=name, email=f"{user_id}@acme.example")
        )

    def member(
        self, organization_id: str, user_id: str, access_role: str = "editor", expires_at: int | None = None
    ) -> Self:
        return self._add(
            "memberships",
            organization_id=organization_id,
            user_id=user_id,
            access_role=access_role,
            expires_at=expires_at,
        )

    def group(
        self,
        organization_id: str,
        group_id: str,
        users: Iterable[str] = (),
        groups: Iterable[str] = (),
        name: str = "n",
    ) -> Self:
        self._add(
            "groups",
            organization_id=organization_id,
            organization_user_group_id=group_id,
            **_content(group_id, groupName=name),
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

    def folder(
        self, organization_id: str, folder_id: str, parent: str = "", access_type: str = "", name: str = "n"
    ) -> Self:
        return self._add(
            "folders",
            organization_id=organization_id,
            folder_id=folder_id,
            parent_folder_id=parent,
            access_type=access_type,
            **_content(folder_id, folderName=name),
        )

    def document(
        self, organization_id: str, document_id: str, folder: str = "", access_type: str = "", name: str = "n"
    ) -> Self:
        return self._add(
            "documents",
            organization_id=organization_id,
            document_id=document_id,
            folder_id=folder,
            access_type=access_type,
            **_content(document_id, documentName=name),
        )

    def grant(
        self,
        organization_id: str,
        *,
        folder: str = "",
        document: str = "",
        user: str = "",
        group: str = "",
        access_role: str = "editor",
        expires_at: int | None = None,
    ) -> Self:
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

    def _add(self, table: str, **row: object) -> Self:
        self.tables[table].append(row)
        return self


def _content(identity: str, **named: str) -> dict[str, object]:
    """The descriptive fields of a record, the first of which is its name."""
    return {"payload": json.dumps(named), "digest": f"{identity}={next(iter(named.values()))}"}


@dataclass
class PlanningWorld:
    """One database with an access model, a ledger and plans."""

    engine: Engine
    ledger_id: int
    revision: int = 0
    backend: Backend = field(default_factory=lambda: Backend(Random(1)))
    """The backend that plans are applied to."""
    time: SimulatedTime = field(default_factory=SimulatedTime)
    runs: int = 0

    def set_directory(self, directory: Directory) -> None:
        """Replaces the records of the access model."""
        self.revision += 1
        with writing(self.engine) as connection:
            for name, table in ACCESS.items():
                connection.execute(delete(table))
                if directory.tables[name]:
                    connection.execute(insert(table), directory.tables[name])
            connection.execute(
                insert(_table(access.RevisionRow)).values(revision=self.revision, created_at=NOON_MS, changes="{}")
            )

    def plan(
        self,
        *,
        now: datetime = NOON,
        limits: LimitSettings | None = None,
        grace: int = 0,
        selection: Selection = EVERYTHING,
        approving: str | None = None,
        retry: Sequence[str] | None = None,
    ) -> Plan:
        """A plan; without ``limits`` there are none. ``retry``: the kinds whose failed items are retried, or all."""
        request = PlanRequest(
            ledger_id=self.ledger_id,
            now=now,
            limits=limits,
            grace=timedelta(seconds=grace),
            selection=selection,
            approving=approving,
            retry=None if retry is None else Retry(tuple(retry)),
        )
        return make_plan(self.engine, request, random=Random())

    def items(self, plan: Plan, *statuses: str, covered: bool = True) -> list[PlanItem]:
        """The plan's items with one of these statuses (any, without), in order."""
        with reading(self.engine) as connection:
            return plan_items(connection, plan.plan_id, *statuses, covered=covered)

    def sent(self, plan: Plan) -> list[tuple[str, str, str, str]]:
        """Operation, scope, container and item of all sent items, in order."""
        return [
            (item.operation, item.scope, item.container_id, item.item_id)
            for item in self.items(plan, "planned", covered=False)
        ]

    def ledger(self) -> dict[Key, dict[str, object]]:
        """The ledger's rows by key."""
        with reading(self.engine) as connection:
            rows = connection.execute(select(LEDGER_ITEM).where(LEDGER_ITEM.c.ledger_id == self.ledger_id)).all()
        return {(row.kind, row.organization_id, row.container_id, row.item_id): dict(row._mapping) for row in rows}

    def apply(self, plan: Plan, *, refuses: str = "") -> None:
        """Sends the plan to the backend, by the applier itself.

        ``refuses``: an operation that the backend refuses.
        """
        self.runs += 1
        run_id = f"run-{self.runs}"
        with writing(self.engine) as connection:
            connection.execute(
                insert(RUN).values(run_id=run_id, trigger="command", status="applying", requested_at=NOON_MS)
            )
        gate = Gate(holds_lock=lambda: True, stop=Event())
        with BackendClient(SETTINGS, transport=WsgiAdapter(self.backend), policy=ONE_TRY, clock=self.time) as client:
            port = RefusingBackend(client, refuses)
            Applier(
                engine=self.engine,
                run_id=run_id,
                plan_id=plan.plan_id,
                ledger_id=self.ledger_id,
                sender=BatchSender(CallSender(port, Capabilities("auto"), gate), SETTINGS.batch_size),
                gate=gate,
                threads=1,
                progress=QuietProgress(),
                random=Random(1),
                counts_before={},
                calls_before=0,
                clock=self.time,
                sleep=self.time.sleep,
            ).apply()
        with writing(self.engine) as connection:
            cancel_unsent(connection, plan.plan_id, "the run ended")
            connection.execute(update(RUN).where(RUN.c.run_id == run_id).values(status="done"))


class ScopedPlans:
    """Counts the plans of changes, which read only what is in their scope."""

    def __init__(self, engine: Engine) -> None:
        self.number = 0
        event.listen(engine, "before_cursor_execute", self._count)

    def _count(self, _connection: object, _cursor: object, statement: str, *_others: object) -> None:
        self.number += "INSERT INTO place_folder" in statement


class RefusingBackend(BackendWrites):
    """A backend that refuses one operation."""

    def __init__(self, client: BackendClient, refuses: str) -> None:
        super().__init__(client)
        self._refuses = refuses

    def write(self, operation: str, request: Request, *, without_roles: bool) -> Mapping[str, ItemAnswer] | None:
        if operation == self._refuses:
            raise BackendRefused(operation, Status.INTERNAL, "not today", 500)
        return super().write(operation, request, without_roles=without_roles)


@pytest.fixture
def world(database_url: str) -> Iterator[PlanningWorld]:
    """An empty world."""
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    ledger = open_ledger(engine, "http://backend.example", "key", lambda: NOON)
    yield PlanningWorld(engine, ledger.ledger_id)
    engine.dispose()


@pytest.fixture
def new_directory() -> type[Directory]:
    return Directory


@pytest.fixture
def now() -> datetime:
    """The default time of plans."""
    return NOON


@pytest.fixture
def now_ms() -> int:
    return NOON_MS
