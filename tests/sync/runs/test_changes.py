"""Sources that support changes: any sequence of reads ends in the state of the source."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from app.access.export import export_records
from app.access.records import AccessRole, Key, Membership, Organization, Record, User
from app.access.revisions import current_revision
from app.access.source_states import SourceState, source_states
from app.access.stored_problems import count_problems, problem_counts
from app.commands.schema import METADATA
from app.directory.bounded import BoundedSource, Policy
from app.directory.source import EVERYTHING, Answered, End, Found, Reading, ReadRequest, Verdict
from app.foundation.database.engine import open_engine, reading, writing
from app.sync.plan.selection import Selection
from app.sync.runs.directory_reads import ReadOptions, RefreshReport, read_directory
from tests.tables import make_tables
from tests.worlds.changing_source import ChangingSource, Fault
from tests.worlds.record_references import references

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
ACME = Organization(organization_id="acme", organization_name="acme")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    engine.dispose()


@pytest.fixture
def source() -> ChangingSource:
    source = ChangingSource("people")
    source.put("acme", ACME)
    for user_id in ("ada", "bob", "cleo"):
        source.put(user_id, *person(user_id))
    return source


def person(user_id: str, name: str = "Name", role: AccessRole = AccessRole.EDITOR) -> list[Record]:
    return [
        User(user_id=user_id, name=name, email=""),
        Membership(organization_id="acme", user_id=user_id, access_role=role),
    ]


def read(engine: Engine, *sources: ChangingSource | BoundedSource, after: timedelta = timedelta(0)) -> RefreshReport:
    return read_directory(engine, sources, clock=lambda: NOW + after)


def model(engine: Engine) -> dict[Key, Record]:
    with reading(engine) as connection:
        return {record.key: record for record in export_records(connection)}


def state(engine: Engine, name: str = "people") -> SourceState:
    with reading(engine) as connection:
        return next(one for one in source_states(connection) if one.name == name)


def records_of(source: ChangingSource) -> dict[Key, Record]:
    return {record.key: record for records in source.objects.values() for record in records}


def test_reads_of_changes_do_not_count_problems(engine: Engine, source: ChangingSource) -> None:
    """A count reads all records, and runs after a few changes would wait for it. A worker counts instead."""
    read(engine, source)
    source.put("dora", *person("dora")[1:])
    assert read(engine, source, after=timedelta(hours=1)).changed
    with reading(engine) as connection:
        assert problem_counts(connection) == {}
    count_problems(engine, lambda: NOW + timedelta(hours=1))
    with reading(engine) as connection:
        assert [one.sort for one in problem_counts(connection)["people"]] == ["dangling"]


def test_changes_are_read_right_after_a_complete_read(engine: Engine, source: ChangingSource) -> None:
    read(engine, source)
    assert source.asked == [EVERYTHING, ReadRequest(since="4")]
    assert model(engine) == records_of(source)
    source.put("bob", *person("bob", "Robert"))
    source.remove("cleo")
    report = read(engine, source, after=timedelta(minutes=5))
    assert source.asked[2:] == [ReadRequest(since="4")]
    assert model(engine) == records_of(source)
    [reported] = report.sources
    assert (reported.verdict, reported.answered, reported.records, reported.gone) == (Verdict.COMPLETE, "changes", 2, 1)
    assert {kind: (one.updated, one.removed) for kind, one in report.changes.items() if one.any} == {
        "user": (1, 1),
        "membership": (0, 1),
    }
    assert (state(engine).records, state(engine).reports_changes) == (5, True)


def test_read_without_changes_changes_nothing(engine: Engine, source: ChangingSource) -> None:
    read(engine, source)
    report = read(engine, source)
    assert (report.changed, report.sources[0].verdict, report.sources[0].records) == (False, Verdict.COMPLETE, 0)
    assert state(engine).records == 7


def test_records_that_an_object_no_longer_provides_are_removed(engine: Engine, source: ChangingSource) -> None:
    read(engine, source)
    source.put("bob", User(user_id="bob", name="Bob", email=""))
    read(engine, source)
    assert ("membership", "acme", "bob") not in model(engine)
    assert model(engine) == records_of(source)


def test_changes_during_a_full_read_are_in_force_at_once(engine: Engine, source: ChangingSource) -> None:
    def meanwhile() -> None:
        source.put("dan", *person("dan"))
        source.put("ada", User(user_id="ada", name="Ada", email=""))
        source.remove("bob")

    source.faults.append(Fault.MOVED)
    source.meanwhile = meanwhile  # type: ignore[method-assign] # that is what it is for
    read(engine, source)
    assert model(engine) == records_of(source)
    read(engine, source)
    assert source.asked[-1] == ReadRequest(since="7")


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.PARTIAL, Fault.MALFORMED, Fault.BROKEN, Fault.REFUSED])
def test_changes_that_could_not_be_read_are_read_later(engine: Engine, source: ChangingSource, fault: Fault) -> None:
    def meanwhile() -> None:
        source.put("ada", User(user_id="ada", name="Ada", email=""))
        source.remove("bob")
        source.remove("cleo")

    source.faults.extend([Fault.MOVED, fault])
    source.meanwhile = meanwhile  # type: ignore[method-assign] # as above
    before = records_of(source)
    report = read(engine, source)
    assert (report.sources[0].verdict, report.problems.total) == (Verdict.COMPLETE, 0)
    assert model(engine) == before
    read(engine, source)
    assert source.asked[-1] == ReadRequest(since="4")
    assert model(engine) == records_of(source)


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.BROKEN])
def test_failed_changes_change_nothing_and_are_read_again(engine: Engine, source: ChangingSource, fault: Fault) -> None:
    read(engine, source)
    before = model(engine)
    source.put("bob", *person("bob", "Robert"))
    source.remove("ada")
    source.faults.append(fault)
    report = read(engine, source)
    assert (report.sources[0].verdict, report.changed, model(engine)) == (Verdict.FAILED, False, before)
    read(engine, source)
    assert source.asked[-1] == ReadRequest(since="4")
    assert model(engine) == records_of(source)


def test_partial_changes_remove_nothing_and_are_read_again(engine: Engine, source: ChangingSource) -> None:
    read(engine, source)
    source.remove("ada")
    source.put("bob", User(user_id="bob", name="Robert", email=""))
    source.put("dan", *person("dan"))
    source.faults.append(Fault.MALFORMED)
    report = read(engine, source)
    assert report.sources[0].verdict is Verdict.PARTIAL
    found = model(engine)
    assert {key for key in found if key[0] == "membership"} == {
        ("membership", "acme", user_id) for user_id in ("ada", "bob", "cleo", "dan")
    }
    assert found["user", "bob"] == User(user_id="bob", name="Robert", email="")
    read(engine, source)
    assert source.asked[-1] == ReadRequest(since="4")
    assert model(engine) == records_of(source)


def test_refused_cursor_leads_to_a_complete_read(engine: Engine, source: ChangingSource) -> None:
    read(engine, source)
    source.remove("ada")
    source.forgets_before = 5
    report = read(engine, source)
    assert source.asked[2:] == [ReadRequest(since="4"), EVERYTHING, ReadRequest(since="5")]
    assert (report.sources[0].verdict, report.sources[0].answered) == (Verdict.COMPLETE, "")
    assert model(engine) == records_of(source)
    assert str(state(engine).last_refusal) == "it did not accept the cursor: the cursor is too old"
    assert state(engine).refusal is None


def test_other_settings_and_age_lead_to_everything(engine: Engine, source: ChangingSource) -> None:
    def under(digest: str) -> BoundedSource:
        return BoundedSource(source, timeout=0, policy=Policy(digest=digest, full_every=3600))

    def whole(asked: BoundedSource, after: timedelta) -> bool:
        source.asked.clear()
        read(engine, asked, after=after)
        assert model(engine) == records_of(source)
        return source.asked[0] == EVERYTHING

    assert whole(under("a"), timedelta(0))
    assert not whole(under("a"), timedelta(minutes=59))
    assert whole(under("b"), timedelta(minutes=59))
    assert not whole(under("b"), timedelta(minutes=118))
    assert whole(under("b"), timedelta(minutes=119))
    # A partial full read does not make up for it.
    source.faults.append(Fault.PARTIAL)
    assert whole(under("b"), timedelta(minutes=200))
    assert whole(under("b"), timedelta(minutes=201))
    assert not whole(under("b"), timedelta(minutes=202))


def test_changes_that_take_away_too_much_are_refused_until_they_are_accepted(engine: Engine) -> None:
    source = ChangingSource("people")
    for number in range(100):
        source.put(str(number), User(user_id=str(number), name="N", email=""))
    read(engine, source)
    for number in range(50):
        source.remove(str(number))
    refused = read(engine, source)
    reported = "would take away 50 of 100 user records, more than 20 and more than 20 %"
    assert (refused.sources[0].verdict, refused.sources[0].reason.startswith(reported)) == (Verdict.PARTIAL, True)
    assert (len(model(engine)), str(state(engine).refusal).startswith(reported)) == (100, True)
    source.put("new", User(user_id="new", name="N", email=""))
    assert read(engine, source).sources[0].verdict is Verdict.PARTIAL
    assert len(model(engine)) == 101
    assert read_directory(engine, [source], ReadOptions(accept_shrink=["people"]), clock=lambda: NOW).changed
    assert model(engine) == records_of(source)
    assert (state(engine).refusal, str(state(engine).last_refusal).startswith(reported)) == (None, True)


@pytest.mark.parametrize("asked_for_changes", [True, False])
def test_an_answer_that_does_not_fit_the_question_is_failed(engine: Engine, asked_for_changes: bool) -> None:
    class Odd(ChangingSource):
        def read(self, request: ReadRequest = EVERYTHING) -> Reading:
            if not asked_for_changes:
                yield End(Verdict.COMPLETE, "", "1", Answered.CHANGES)
            elif request.since:
                yield Found(ACME, "somewhere")
                yield End(Verdict.COMPLETE, "", "2", Answered.CHANGES)
            else:
                yield from super().read(request)

    source = Odd("people")
    source.put("ada", *person("ada")[:1])
    read(engine, source)
    [reported] = read(engine, source).sources
    assert (reported.verdict, reported.reason.partition(":")[0]) == (Verdict.FAILED, "an error of the program")


def test_only_those_that_are_named_are_read(engine: Engine, source: ChangingSource) -> None:
    other = ChangingSource("others")
    other.put("eve", User(user_id="eve", name="Eve", email=""))
    read(engine, source, other)
    source.remove("ada")
    other.put("eve", User(user_id="eve", name="Evelyn", email=""))
    with reading(engine) as connection:
        revision = current_revision(connection)
    report = read_directory(
        engine, [source, other], ReadOptions(only={"others"}), clock=lambda: NOW + timedelta(hours=1)
    )
    assert [reported.name for reported in report.sources] == ["others"]
    assert report.retained_sources == ()
    found = model(engine)
    assert (found["user", "eve"], ("user", "ada") in found) == (User(user_id="eve", name="Evelyn", email=""), True)
    assert report.revision == revision + 1
    assert (state(engine).is_configured, state(engine).last_read_at) == (True, NOW.timestamp() * 1000)


def test_read_of_a_part_changes_nothing_else(engine: Engine, source: ChangingSource) -> None:
    read(engine, source)
    source.put("ada", User(user_id="ada", name="Ada", email=""))
    source.put("bob", *person("bob", "Robert"))
    source.asked.clear()
    report = read_directory(engine, [source], ReadOptions(selection=Selection.of(user_ids=["ada"])), clock=lambda: NOW)
    [request] = source.asked
    assert request.part is not None
    assert (request.part.user_ids, [one.id for one in request.part.objects]) == (("ada",), ["ada"])
    assert report.sources[0].answered == "part"
    found = model(engine)
    assert found["user", "ada"] == User(user_id="ada", name="Ada", email="")
    assert ("membership", "acme", "ada") not in found
    assert found["user", "bob"] == User(user_id="bob", name="Name", email="")
    # The cursor does not cover the part, so the next read is complete.
    read(engine, source)
    assert source.asked[1] == ReadRequest()
    assert model(engine) == records_of(source)


def test_part_of_an_organization_has_the_objects_that_name_it(engine: Engine, source: ChangingSource) -> None:
    read(engine, source)
    source.asked.clear()
    read_directory(engine, [source], ReadOptions(selection=Selection.of(["acme"])), clock=lambda: NOW)
    [request] = source.asked
    assert request.part is not None
    assert sorted(one.id for one in request.part.objects) == ["acme", "ada", "bob", "cleo"]
    source.remove("cleo")
    read_directory(engine, [source], ReadOptions(selection=Selection.of(["acme"], ["cleo"])), clock=lambda: NOW)
    assert model(engine) == records_of(source)


def test_source_without_changes_is_read_completely(engine: Engine) -> None:
    source = ChangingSource("people", reports_changes=False, supports_parts=False)
    source.put("acme", ACME)
    source.put("ada", *person("ada"))
    read(engine, source)
    source.remove("ada")
    report = read_directory(
        engine, [source], ReadOptions(selection=Selection.of(user_ids=["somebody"])), clock=lambda: NOW
    )
    assert report.sources[0].answered == ""
    assert model(engine) == {ACME.key: ACME}
    assert source.asked[1].since == ""


# Any sequence of changes, faults and questions.

PEOPLE = ("ada", "bob", "cleo", "dan")
steps = st.one_of(
    st.tuples(
        st.just("put"),
        st.sampled_from(PEOPLE),
        st.sampled_from(["Name", "Other"]),
        st.sets(st.sampled_from(["acme", "globex"])),
    ),
    st.tuples(st.just("remove"), st.sampled_from([*PEOPLE, "acme", "globex"])),
    st.tuples(st.just("found"), st.sampled_from(["acme", "globex"])),
    st.tuples(st.just("forget")),
    st.tuples(st.just("part"), st.sets(st.sampled_from(PEOPLE), min_size=1)),
    st.tuples(st.just("read"), st.lists(st.sampled_from([None, *Fault]), max_size=2), st.integers(0, 30)),
)


def take(source: ChangingSource, step: tuple[object, ...]) -> None:
    what, *how = step
    if what == "put":
        user_id, name, organizations = how
        records: list[Record] = [User(user_id=str(user_id), name=str(name), email="")]
        assert isinstance(organizations, set | frozenset)
        records += [Membership(organization_id=one, user_id=str(user_id)) for one in sorted(organizations)]
        source.put(str(user_id), *records)
    elif what == "found":
        source.put(str(how[0]), Organization(organization_id=str(how[0]), organization_name=str(how[0])))
    elif what == "remove":
        source.remove(str(how[0]))
    elif what == "forget":
        source.forgets_before = 1_000_000


def standing(records: dict[Key, Record]) -> dict[Key, Record]:
    """Without what refers to nothing."""
    return {key: record for key, record in records.items() if all(one in records for one in references(record))}


@pytest.mark.extended
@pytest.mark.slow
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(steps, max_size=14), st.lists(steps.filter(lambda step: step[0] in {"put", "remove"}), max_size=3))
def test_any_sequence_of_reads_ends_in_the_state_of_the_source(
    database_url: str, script: list[tuple[object, ...]], moved: list[tuple[object, ...]]
) -> None:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    with writing(engine) as connection:
        for table in METADATA.sorted_tables:
            connection.execute(table.delete())
    source = ChangingSource("people")
    source.put("acme", ACME)
    worlds: list[dict[Key, Record]] = []
    # What was given before, and may be kept although it refers to nothing: it stands when what it names comes.
    given: list[dict[Key, Record]] = []

    def meanwhile() -> None:
        for step in moved:
            take(source, step)
        worlds.append(standing(records_of(source)))
        given.append(records_of(source))

    source.meanwhile = meanwhile  # type: ignore[method-assign] # that is what it is for
    guarded = BoundedSource(source, timeout=30, policy=Policy(full_every=3600 * 20))
    moments = [NOW]
    everything_was_read = False
    kept: dict[Key, Record] = {}
    try:
        for step in [*script, ("read", [], 0)]:
            if step[0] == "part":
                assert isinstance(step[1], set | frozenset)
                given.append(records_of(source))
                read_directory(
                    engine, [guarded], ReadOptions(selection=Selection.of(user_ids=step[1])), clock=lambda: moments[-1]
                )
                kept = model(engine)
                continue
            if step[0] != "read":
                take(source, step)
                continue
            _, faults, hours = step
            assert isinstance(faults, list)
            assert isinstance(hours, int)
            moments.append(moments[-1] + timedelta(hours=hours))
            source.faults.extend(fault for fault in faults if fault is not None)
            is_faulty = bool(source.faults)
            records_before, before = records_of(source), kept
            worlds[:] = [standing(records_before)]
            earlier = len(given)
            given.append(records_before)
            report = read_directory(engine, [guarded], ReadOptions(accept_empty=["people"]), clock=lambda: moments[-1])
            source.faults.clear()
            source.forgets_before = 0
            kept = model(engine)
            [reported] = report.sources
            if reported.verdict is Verdict.FAILED:
                assert (kept, report.changed) == (before, False)
            elif reported.verdict is Verdict.COMPLETE:
                everything_was_read = True
                del given[:earlier]
                # As it was at its beginning, or later where what changed meanwhile could be asked for.
                assert kept in worlds
            else:
                assert {key for key in before if key[0] == "user"} <= set(kept)
                assert all(any(one.get(key) == record for one in (before, *given)) for key, record in kept.items())
            if not is_faulty:
                assert reported.verdict is Verdict.COMPLETE
                assert kept == standing(records_of(source))
        assert everything_was_read
        assert kept == standing(records_of(source))
        with reading(engine) as connection:
            of_the_source = connection.execute(text("SELECT count(*) FROM source_user")).scalar_one()
        assert of_the_source == sum(isinstance(one, User) for one in records_of(source).values())
    finally:
        engine.dispose()
