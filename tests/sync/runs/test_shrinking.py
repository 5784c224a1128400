"""Reads with too many losses, and how they are accepted."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from sqlalchemy import Engine

from app.access.export import export_records, model_counts
from app.access.records import AccessRole, Fill, Membership, Organization, Record, User
from app.access.refresh.reads import Losses
from app.access.source_states import source_states
from app.commands.directory_wire import object_from_report
from app.commands.schema import METADATA
from app.directory.bounded import BoundedSource, Policy
from app.directory.mapping.source import MappedSource
from app.directory.source import EVERYTHING, End, Found, Reading, ReadRequest, Verdict
from app.directory.source_settings import GuardSettings
from app.foundation.database.engine import open_engine, reading
from app.sync.runs.directory_reads import (
    ReadOptions,
    RefreshReport,
    UnknownSourceError,
    forget,
    losses_sentences,
    read_directory,
)
from tests.tables import make_tables
from tests.worlds.object_directory import ObjectDirectory, rules_of, thing

pytestmark = pytest.mark.slow

COMPLETE = End(Verdict.COMPLETE)
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


class Given:
    """A source with these records."""

    def __init__(self, name: str, records: Iterable[Record], end: End = COMPLETE) -> None:
        self.name = name
        self._records = list(records)
        self._end = end

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        for line, record in enumerate(self._records, 1):
            yield Found(record, f"{self.name}:{line}")
        yield self._end

    def guarded_by(self, count: int, percent: float) -> BoundedSource:
        """The same, with a guard of its own."""
        return BoundedSource(self, timeout=0, policy=Policy(guard=GuardSettings(count=count, percent=percent)))


def users(count: int, of: str = "u") -> list[Record]:
    return [User(user_id=f"{of}{number}", name="N", email="") for number in range(count)]


def memberships(count: int) -> list[Record]:
    acme = Organization(organization_id="acme", organization_name="acme")
    return [acme, *(Membership(organization_id="acme", user_id=f"u{number}") for number in range(count))]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


Run = Callable[..., RefreshReport]


@pytest.fixture
def run(engine: Engine) -> Run:
    def run(*sources: Given | BoundedSource, guard: GuardSettings | None = None, **options: Any) -> RefreshReport:
        return read_directory(engine, sources, ReadOptions(**options), clock=lambda: NOW, guard=guard)

    return run


def counts(engine: Engine) -> dict[str, int]:
    with reading(engine) as connection:
        return {kind: count for kind, count in model_counts(connection).items() if count}


def test_read_with_too_many_losses_is_partial_until_it_is_accepted(engine: Engine, run: Run) -> None:
    run(Given("a", users(100)))
    report = run(Given("a", users(79)))
    assert (report.sources[0].verdict, report.changed) == (Verdict.PARTIAL, False)
    assert report.sources[0].reason == report.sources[0].refused
    assert report.sources[0].reason == (
        "would take away 21 of 100 user records, more than 20 and more than 20 %; additions and changes were applied, "
        "removals were not; if this is intended, confirm it once: usher directory refresh --accept-shrink a"
    )
    assert counts(engine) == {"user": 100}
    with reading(engine) as connection:
        [state] = source_states(connection, by_kind=True)
    assert (state.last_verdict, state.records, dict(state.kinds)) == ("partial", 100, {"user": 100})
    report = run(Given("a", users(79)), accept_shrink=("a",))
    assert (report.sources[0].verdict, report.changes["user"].removed) == (Verdict.COMPLETE, 21)
    # Once: the next time it is asked again.
    assert run(Given("a", users(40))).sources[0].verdict is Verdict.PARTIAL


@pytest.mark.parametrize(("before", "after"), [(100, 80), (1000, 801), (20, 1), (1000, 800)])
def test_removals_within_one_of_the_limits_are_applied(engine: Engine, run: Run, before: int, after: int) -> None:
    first = run(Given("a", users(before)))
    assert (first.sources[0].losses, losses_sentences(first.sources)) == ({}, [])
    report = run(Given("a", users(after)))
    assert report.sources[0].verdict is Verdict.COMPLETE
    assert counts(engine) == {"user": after}
    assert report.sources[0].losses == {"user": (before - after, before)}
    taken = f"{before - after:,} of {before:,} user records"
    assert losses_sentences(report.sources) == [
        f"source a takes away {taken}; a read is refused above 20 records and 20 percent"
    ]


def test_losses_are_reported_by_source_and_kind(run: Run) -> None:
    own = {"count": 0, "percent": 100}
    run(Given("a", [*users(60), *memberships(50)]), Given("b", users(30, "b")).guarded_by(**own))
    report = run(Given("a", [*users(55), *memberships(10)]), Given("b", users(2, "b")).guarded_by(**own))
    assert [(one.verdict.value, one.losses) for one in report.sources] == [
        ("partial", {"user": (5, 60), "membership": (40, 50)}),
        ("complete", {"user": (28, 30)}),
    ]
    assert losses_sentences(report.sources) == [
        "source b takes away 28 of 30 user records; a read is refused above 0 records and 100 percent"
    ]
    fields = orjson.loads(orjson.dumps(object_from_report(report)))["sources"]
    assert [(one["losses"], one["guard"]) for one in fields] == [
        (
            [{"kind": "user", "gone": 5, "kept": 60}, {"kind": "membership", "gone": 40, "kept": 50}],
            {"count": 20, "percent": 20},
        ),
        ([{"kind": "user", "gone": 28, "kept": 30}], {"count": 0, "percent": 100}),
    ]
    accepted = run(Given("a", [*users(55), *memberships(10)]), only=["a"], accept_shrink=["a"])
    assert accepted.sources[0].losses == {"user": (5, 60), "membership": (40, 50)}


def test_few_changes_need_no_complete_count(engine: Engine) -> None:
    people = ObjectDirectory()
    people.put(*(thing("users", str(number), {"id": str(number)}) for number in range(60)))
    rules = rules_of("[{from: users, user: {userId: it.id, name: it.id, email: it.id}}]")
    source = BoundedSource(MappedSource("ad", people, rules), timeout=0, policy=Policy())

    def read() -> tuple[str, str, Losses]:
        (one,) = read_directory(engine, [source], clock=lambda: NOW).sources
        return one.answered, one.verdict.value, one.losses

    assert read() == ("", "complete", {})
    people.remove("users", "7")
    assert read() == ("changes", "complete", {"user": (1, None)})
    for number in range(10, 40):
        people.remove("users", str(number))
    assert read() == ("changes", "partial", {"user": (30, 59)})
    # What was held back is asked for again.
    assert read() == ("changes", "partial", {"user": (30, 59)})


def test_records_that_are_new_do_not_make_up_for_those_that_go(engine: Engine, run: Run) -> None:
    run(Given("a", users(100)))
    assert run(Given("a", users(200, of="other"))).sources[0].reason.startswith("would take away 100 of 100 user")
    assert counts(engine) == {"user": 300}


def test_each_kind_is_judged_by_itself(engine: Engine, run: Run) -> None:
    run(Given("a", [*users(1000), *memberships(30)]))
    reason = run(Given("a", [*users(1000), *memberships(0)])).sources[0].reason
    assert reason.startswith("would take away 30 of 30 membership records, more")
    assert counts(engine) == {"organization": 1, "user": 1000, "membership": 30}


def test_partial_read_removes_nothing_and_is_not_refused(run: Run) -> None:
    run(Given("a", users(100)))
    report = run(Given("a", users(1), End(Verdict.PARTIAL, "cut off")))
    assert (report.sources[0].verdict, report.sources[0].reason) == (Verdict.PARTIAL, "cut off")


def test_refused_source_does_not_delay_others(engine: Engine, run: Run) -> None:
    run(Given("a", users(100)), Given("b", users(5, of="b")))
    report = run(Given("a", users(1)), Given("b", users(6, of="b")))
    assert [source.verdict for source in report.sources] == [Verdict.PARTIAL, Verdict.COMPLETE]
    assert counts(engine) == {"user": 106}


def test_many_sources_that_lose_a_little_are_refused_together(engine: Engine, run: Run) -> None:
    def given(size: int) -> list[Given]:
        return [Given(f"s{number}", users(size, of=f"s{number}-")) for number in range(5)]

    run(*given(10))
    report = run(*given(5))
    assert {source.verdict for source in report.sources} == {Verdict.PARTIAL}
    reason = "together with the other sources, would take away 25 of 50 user records, more than 20 and more than 20 %; "
    assert all(source.reason.startswith(reason) for source in report.sources)
    assert counts(engine) == {"user": 50}
    # What is accepted of one leaves the others below.
    report = run(*given(5), accept_shrink=("s3",))
    assert {source.verdict for source in report.sources} == {Verdict.COMPLETE}
    assert counts(engine) == {"user": 25}


def test_own_guard_of_a_source_replaces_the_common_one(engine: Engine, run: Run) -> None:
    run(Given("lax", users(100)), Given("strict", users(100, of="s")))
    report = run(
        Given("lax", users(50)).guarded_by(20, 60),
        Given("strict", users(97, of="s")).guarded_by(2, 1),
        guard=GuardSettings(count=0, percent=0),
    )
    assert [source.verdict for source in report.sources] == [Verdict.COMPLETE, Verdict.PARTIAL]
    assert report.sources[1].reason.startswith("would take away 3 of 100 user records, more than 2 and more than 1 %;")
    assert counts(engine) == {"user": 150}


def test_guard_of_a_hundred_percent_refuses_nothing(engine: Engine, run: Run) -> None:
    run(Given("a", users(100)), guard=GuardSettings(count=0, percent=100))
    run(Given("a", users(1)), guard=GuardSettings(count=0, percent=100))
    assert counts(engine) == {"user": 1}


def test_an_empty_source_that_is_accepted_has_shrunk_with_that(engine: Engine, run: Run) -> None:
    run(Given("a", users(100)))
    # To accept less is not to accept nothing: that is most often the wrong file.
    assert "--accept-empty a" in run(Given("a", []), accept_shrink=("a",)).sources[0].reason
    assert run(Given("a", []), accept_empty=("a",)).sources[0].verdict is Verdict.COMPLETE
    assert counts(engine) == {}


def test_only_a_source_that_is_read_can_be_accepted(run: Run) -> None:
    with pytest.raises(UnknownSourceError, match="no source is called 'b'; there are: a"):
        run(Given("a", []), accept_shrink=("b",))


def test_retained_source_keeps_its_records_until_it_is_forgotten(engine: Engine, run: Run) -> None:
    run(Given("a", users(100)), Given("b", [*users(100), *memberships(50)]))
    assert run(Given("a", users(100))).retained_sources == ("b",)
    assert counts(engine) == {"organization": 1, "user": 100, "membership": 50}
    forgotten = forget(engine, "b", [Given("a", [])], clock=lambda: NOW)
    assert dict(forgotten.records) == {"organization": 1, "user": 100, "membership": 50}
    assert {kind: one.removed for kind, one in forgotten.replaced.changes.items() if one.any} == {
        "organization": 1,
        "membership": 50,
    }


# What a refused read changes all the same.


def roles(engine: Engine) -> dict[str, tuple[AccessRole, datetime | None]]:
    with reading(engine) as connection:
        return {
            str(record.user_id): (record.access_role, record.expires_at)
            for record in export_records(connection)
            if isinstance(record, Membership)
        }


def disabled(engine: Engine) -> set[str]:
    with reading(engine) as connection:
        return {record.user_id for record in export_records(connection) if isinstance(record, User) and record.disabled}


def people(count: int, *, off: Iterable[int] = (), of: str = "u") -> list[Record]:
    off = set(off)
    return [User(user_id=f"{of}{number}", name="N", email="", disabled=number in off) for number in range(count)]


def test_refused_read_adds_and_changes_but_removes_nothing(engine: Engine, run: Run) -> None:
    acme = Organization(organization_id="acme", organization_name="acme")

    def members(role: AccessRole, ends: datetime | None) -> Record:
        return Membership(organization_id="acme", user_id="u0", access_role=role, expires_at=ends)

    run(Given("a", [acme, *people(100), members(AccessRole.EDITOR, None)]))
    report = run(Given("a", [acme, *people(50, off=[3]), members(AccessRole.VIEWER, NOW), *people(1, of="new")]))
    assert (report.sources[0].verdict, bool(report.sources[0].refused)) == (Verdict.PARTIAL, True)
    assert counts(engine)["user"] == 101
    assert disabled(engine) == {"u3"}
    assert roles(engine) == {"u0": (AccessRole.VIEWER, NOW)}
    run(Given("a", [acme, *people(50), members(AccessRole.VIEWER, NOW)]), accept_shrink=["a"])
    assert counts(engine)["user"] == 50


def test_many_enabled_users_stay_disabled_until_it_is_accepted(engine: Engine, run: Run) -> None:
    run(Given("a", people(200, off=range(40))))
    renamed = [replace(one, name="M") for one in people(200, off=range(34, 41)) if isinstance(one, User)]
    report = run(Given("a", renamed))
    assert report.sources[0].verdict is Verdict.PARTIAL
    assert report.sources[0].reason.startswith("would take away 34 of 40 disabled user records, more than 20 and more")
    assert report.sources[0].losses == {"disabled user": (34, 40)}
    # Who is disabled by it is; of those whom it enables nothing changes.
    assert disabled(engine) == {f"u{number}" for number in range(41)}
    with reading(engine) as connection:
        names = {one.user_id: one.name for one in export_records(connection) if isinstance(one, User)}
    assert (names["u0"], names["u39"], names["u199"]) == ("N", "M", "M")
    run(Given("a", renamed), accept_shrink=["a"])
    assert disabled(engine) == {f"u{number}" for number in range(34, 41)}


@pytest.mark.parametrize("number", [20, 8])
def test_few_are_enabled_without_a_word(engine: Engine, run: Run, number: int) -> None:
    run(Given("a", people(200, off=range(40))))
    assert run(Given("a", people(200, off=range(number, 40)))).sources[0].verdict is Verdict.COMPLETE
    assert len(disabled(engine)) == 40 - number


def test_fills_that_go_enable_too(engine: Engine, run: Run) -> None:
    leavers = [Fill(user_id=f"u{number}", disabled=True) for number in range(30)]
    others = [Fill(user_id=f"u{number}", initial="X") for number in range(30, 1000)]
    run(Given("ad", people(1000)), Given("hr", [*leavers, *others]))
    enabled = [replace(one, disabled=False) for one in leavers]
    for given in (others, [*enabled, *others]):
        report = run(Given("ad", people(1000)), Given("hr", given))
        assert report.sources[1].losses["disabled fill"] == (30, 30)
        assert report.sources[1].verdict is Verdict.PARTIAL
        assert len(disabled(engine)) == 30


def test_a_user_disabled_by_another_row_stays_disabled_and_is_not_counted(engine: Engine) -> None:
    objects = ObjectDirectory()
    rules = rules_of(
        "[{from: users, user: {userId: it.id, name: it.id, email: it.id, disabled: it.off}},"
        " {from: more, user: {userId: it.id, name: it.id, email: it.id, disabled: it.off}}]"
    )
    source = BoundedSource(
        MappedSource("ad", objects, rules), timeout=0, policy=Policy(guard=GuardSettings(count=0, percent=0))
    )
    objects.put(thing("users", "1", {"id": "1", "off": True}), thing("more", "x", {"id": "2", "off": False}))
    read_directory(engine, [source], clock=lambda: NOW)
    objects.remove("users", "1")
    objects.put(thing("more", "1", {"id": "1", "off": True}))
    (one,) = read_directory(engine, [source], clock=lambda: NOW).sources
    assert (one.verdict, one.losses) == (Verdict.COMPLETE, {})
    assert disabled(engine) == {"1"}
    objects.remove("more", "1")
    objects.put(thing("users", "1", {"id": "1", "off": False}))
    (one,) = read_directory(engine, [source], clock=lambda: NOW).sources
    assert (one.verdict, one.losses) == (Verdict.PARTIAL, {"disabled user": (1, 1)})
    assert disabled(engine) == {"1"}
