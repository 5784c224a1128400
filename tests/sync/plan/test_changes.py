"""A plan of what has changed since a plan of everything is the same as a plan of everything."""

from datetime import timedelta
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from app.access.problem_list import ProblemList
from app.access.records import Key, Organization, Record
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.commands.schema import METADATA
from app.foundation.database.engine import reading, writing
from app.sync.ledger.ledger import open_ledger
from app.sync.plan.discards import discard_held
from app.sync.plan.planner import PlanRequest, make_plan
from app.sync.plan.selection import EVERYTHING, Selection
from app.sync.plan.settings import LimitSettings
from app.sync.plan.stored import Plan
from app.sync.plan.tables import PlanImpactRow, PlanItemRow, PlanPartRow
from tests.worlds.backend import TROUBLES, Backend
from tests.worlds.planning import PlanningWorld, ScopedPlans
from tests.worlds.random_directories import NOW, ORGANIZATIONS, USERS, Company

LIMITS = LimitSettings(delete_count=3, delete_percent=50)
GRACE = timedelta(seconds=90)


class ChangingWorld:
    """A directory that changes record by record, and the plans that follow it."""

    def __init__(self, world: PlanningWorld, number: int) -> None:
        self.world, self.random = world, Random(number)
        self.records: dict[Key, Record] = {record.key: record for record in Company(number).records()}
        self.others = {record.key: record for seed in range(1, 8) for record in Company(number + seed).records()}
        self.since: list[str] = []
        with writing(world.engine) as connection:
            for table in METADATA.sorted_tables:
                connection.execute(delete(table))
        world.ledger_id = open_ledger(world.engine, "http://backend.example", "key", lambda: NOW).ledger_id
        world.backend = Backend(Random(number))
        world.time.now = NOW

    def change(self) -> None:
        """Adds, replaces and removes a few records."""
        for _ in range(self.random.randint(0, 3)):
            if self.records and self.random.random() < 0.4:
                key = self.random.choice(list(self.records))
                if not isinstance(self.records[key], Organization) or self.random.random() < 0.1:
                    del self.records[key]
            else:
                record = self.random.choice(list(self.others.values()))
                if not isinstance(record, Organization) or self.random.random() < 0.1:
                    self.records[record.key] = record
        self.read()

    def read(self) -> None:
        with Refresh(self.world.engine, clock=self.world.time, problems=ProblemList()) as refresh:
            refresh.begin(["directory"])
            for record in self.records.values():
                refresh.staging.add(record, "a place")
            refresh.staging.end(ReadResult(verdict="complete"))
            refresh.finish(["directory"], ["directory"])

    def plan(self, selection: Selection = EVERYTHING, *, preview: bool = False, complete: bool = False) -> Plan:
        request = PlanRequest(
            ledger_id=self.world.ledger_id,
            now=self.world.time(),
            limits=LIMITS,
            grace=GRACE,
            selection=selection,
            is_preview=preview,
            since=() if complete else self.since,
        )
        return make_plan(self.world.engine, request, random=Random())

    def follow(self, selection: Selection = EVERYTHING) -> None:
        """Makes a plan of the changes, and applies it."""
        plan = self.plan(selection)
        self.since = [plan.plan_id] if selection.is_everything else [*self.since, plan.plan_id]
        self.world.apply(plan)
        if self.random.random() < 0.1:
            with writing(self.world.engine) as connection:
                discard_held(
                    connection, ledger_id=self.world.ledger_id, run_id="run", plan_id=plan.plan_id, message="not these"
                )

    def contents(self, plan: Plan) -> list[object]:
        """Everything that is stored of a plan, except its id."""
        found: list[object] = [plan.holds]
        with reading(self.world.engine) as connection:
            for table in (PlanItemRow.__table__, PlanPartRow.__table__, PlanImpactRow.__table__):
                columns = [column for column in table.columns if column.name != "plan_id"]
                key = [column for column in table.primary_key if column.name != "plan_id"]
                query = select(*columns).where(table.c.plan_id == plan.plan_id).order_by(*key)
                found.append([dict(row._mapping) for row in connection.execute(query)])
        return found


SELECTIONS = [EVERYTHING, EVERYTHING, *(Selection.of([name]) for name in ORGANIZATIONS)]


def compare_plans(world: PlanningWorld, number: int, trouble: int) -> None:
    """Plans a directory that changes, each time the changes and everything; ``trouble``: percent of failing calls."""
    changing = ChangingWorld(world, number)
    world.backend.troubles, world.backend.percent = TROUBLES, trouble
    changing.read()
    changing.follow()
    for _ in range(8):
        changing.change()
        world.time.move_on(seconds=changing.random.choice([1, 30, 60, 120]))
        selection = changing.random.choice(SELECTIONS)
        changes, everything = (changing.plan(selection, preview=True, complete=complete) for complete in (False, True))
        assert changing.contents(changes) == changing.contents(everything)
        if changing.random.random() < 0.2:
            changing.follow(Selection.of([], [changing.random.choice(USERS)]))
        changing.follow(selection)


@pytest.mark.slow
@pytest.mark.parametrize("trouble", [0, 30])
def test_plan_of_changes_is_the_plan_of_everything(world: PlanningWorld, trouble: int) -> None:
    plans = ScopedPlans(world.engine)
    compare_plans(world, 1, trouble)
    assert plans.number > 8


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_plan_of_any_changes_is_the_plan_of_everything(world: PlanningWorld) -> None:
    @settings(
        max_examples=25,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(st.integers(0, 2**32), st.sampled_from([0, 0, 30]))
    def check(number: int, trouble: int) -> None:
        compare_plans(world, number, trouble)

    check()
