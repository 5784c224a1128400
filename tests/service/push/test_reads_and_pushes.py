"""Reads and pushes of one source in any order: a read does not undo what was pushed after it began."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from app.access.problem_list import ProblemList
from app.access.refresh.pushes import NumberedPush, apply_push
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.foundation.clock import Clock
from app.foundation.database.engine import reading, writing
from tests.service.push.conftest import HR, Service, cast, document, key, organization

IDS = ["a", "b", "c", "d"]


def documents(service: Service) -> dict[str, str]:
    return {str(one["documentId"]): str(one["documentName"]) for one in service.records() if one["kind"] == "document"}


def marks(service: Service) -> int:
    with reading(service.engine) as connection:
        return int(connection.execute(text("SELECT count(*) FROM pushed_key")).scalar_one())


def test_a_read_that_began_before_a_push_does_not_undo_it(service: Service) -> None:
    world = [organization(), document("old"), document("kept")]
    service.read("hr", world)

    def meanwhile() -> None:
        service.pushed(
            1,
            source="hr",
            token=HR,
            upsert=[document("new"), document("kept", documentName="renamed")],
            remove=[key(document("old"))],
        )

    service.read("hr", world, meanwhile=meanwhile)
    assert documents(service) == {"new": "new", "kept": "renamed"}
    assert marks(service) == 3
    # A later read replaces the pushed records and deletes the marks.
    service.read("hr", world)
    assert documents(service) == {"old": "old", "kept": "kept"}
    assert marks(service) == 0


def test_a_failed_read_keeps_the_marks_for_running_reads(service: Service) -> None:
    service.read("hr", [organization()])

    def meanwhile() -> None:
        service.pushed(1, source="hr", token=HR, upsert=[document("new")])
        service.read("app", [])  # that of the source itself fails here

    service.read("hr", [organization()], meanwhile=meanwhile)
    assert documents(service) == {"new": "new"}


def test_marks_stay_until_a_complete_read(service: Service) -> None:
    service.read("hr", [organization()])
    service.pushed(1, source="hr", token=HR, upsert=[document("new")])
    assert marks(service) == 1
    assert documents(service) == {"new": "new"}
    service.read("hr", [organization(), document("new")])
    assert marks(service) == 0


def test_a_source_that_is_not_read_has_no_marks(service: Service) -> None:
    service.pushed(1, upsert=[organization(), document("new")])
    assert marks(service) == 0


def test_forgetting_a_source_removes_its_pushed_records(service: Service) -> None:
    service.pushed(1, source="hr", token=HR, upsert=[organization(), document("d")])
    with Refresh(service.engine, clock=service.clock, problems=ProblemList()) as refreshing:
        refreshing.begin(["app"])
        refreshing.staging.end(ReadResult(records=0, verdict="failed"))
        refreshing.finish()
        assert refreshing.forget("hr").changed
    with reading(service.engine) as connection:
        for table in ("directory_push", "pushed_key", "directory_source"):
            found = connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
            assert found == (1 if table == "directory_source" else 0)


class Read:
    """A read in progress, and the records that it saw."""

    def __init__(self, service: Service, world: dict[str, str]) -> None:
        self.world = dict(world)
        self._refreshing = Refresh(service.engine, clock=service.clock, problems=ProblemList())
        self._refreshing.__enter__()
        self._refreshing.begin(["hr"])

    def end(self, *, failed: bool) -> None:
        self._refreshing.staging.add(cast(organization()), "hr:0")
        for one, name in self.world.items():
            self._refreshing.staging.add(cast(document(one, documentName=name)), "hr")
        verdict = "failed" if failed else "complete"
        self._refreshing.staging.end(ReadResult(records=len(self.world) + 1, verdict=verdict))
        self._refreshing.finish()
        self._refreshing.__exit__(None, None, None)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from(IDS), st.sampled_from(["x", "y", ""])),
        # An earlier push is repeated: its response was lost, or the network delayed it.
        st.tuples(st.just("again"), st.integers(0, 5), st.none()),
        st.tuples(st.just("begin"), st.none(), st.none()),
        st.tuples(st.just("end"), st.integers(0, 3), st.booleans()),
    ),
    min_size=1,
    max_size=14,
)


@pytest.mark.slow
@pytest.mark.timeout(400)
@given(steps=STEPS)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_interleaving_leaves_the_last_pushed_state(
    service: Service, steps: list[tuple[str, object, object]]
) -> None:
    """The state of the application is what it pushed last.

    It pushes each change at once. A read sees the state at the time when it began. In any order of reads and pushes,
    the final state is in force.
    """
    clear(service)
    world: dict[str, str] = {}
    pushed_bodies: list[dict[str, object]] = []
    reads: list[Read] = []
    push = pushing(service.engine, service.clock)
    push({"sequence": 1, "upsert": [organization()], "remove": []})
    for what, which, how in steps:
        if what == "push":
            name = str(how)
            world.pop(str(which), None)
            change: dict[str, object] = {"upsert": [], "remove": [key(document(str(which)))]}
            if name:
                world[str(which)] = name
                change = {"upsert": [document(str(which), documentName=name)], "remove": []}
            pushed_bodies.append({"sequence": len(pushed_bodies) + 2} | change)
            push(pushed_bodies[-1])
        elif what == "again" and pushed_bodies:
            push(pushed_bodies[-1 - int(str(which)) % len(pushed_bodies)])
        elif what == "begin" and len(reads) < 3:
            reads.append(Read(service, world))
        elif what == "end" and reads:
            reads.pop(int(str(which)) % len(reads)).end(failed=bool(how))
        assert documents(service) == world, (what, which, how)
    for read in reads:
        read.end(failed=False)
        assert documents(service) == world


def pushing(engine: object, clock: Clock) -> Callable[[dict[str, object]], None]:
    """Applies pushes without HTTP, and compares the responses to repetitions."""
    answers: dict[int, object] = {}

    def push(body: dict[str, object]) -> None:
        pushed = NumberedPush(
            source="hr",
            sequence=int(str(body["sequence"])),
            previous_sequence=None,
            upserts=[cast(one) for one in body["upsert"]],  # type: ignore[attr-defined] # lists, as above
            removals=[cast(one | {"documentName": "-"}) for one in body["remove"]],  # type: ignore[attr-defined] # as above
            by="test",
        )
        answer = apply_push(engine, pushed, configured=["hr"], only_pushed=False, clock=clock)  # type: ignore[arg-type] # an engine
        latest = max(answers, default=0)
        if pushed.sequence > latest:
            answers[pushed.sequence] = answer
        else:
            assert answer == answers[latest]

    return push


def clear(service: Service) -> None:
    """Hypothesis uses one database for all examples."""
    with writing(service.engine) as connection:
        for table in ("directory_push", "pushed_key", "directory_source", "directory_state", "touched"):
            connection.execute(text(f"DELETE FROM {table}"))
        for table in ("organization", "document"):
            for sort in ("source", "model"):
                connection.execute(text(f"DELETE FROM {sort}_{table}"))
        connection.execute(text("DELETE FROM access_revision"))
