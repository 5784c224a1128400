"""A user whom a fill disabled by an alias stays disabled until the fill is removed, even if the alias changes hands."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, text

from app.access.candidate import open_candidate
from app.access.problem_list import ProblemList
from app.access.records import Fill, Record, User
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine, reading
from tests.access.test_merging import SOURCES, Read, emptied, model_of, run_refresh
from tests.access.test_merging_keys import ObjectChanges, merge_everything, push, read_changes
from tests.tables import make_tables

NOW = datetime(2026, 11, 1, tzinfo=UTC)
PEOPLE, HR, OTHER = SOURCES
LEFT = "users\x1f1"


def person(user_id: str, *aliases: str, disabled: bool = False) -> User:
    return User(user_id=user_id, name=user_id, email="", aliases=tuple(sorted(aliases)), disabled=disabled)


def leaver(alias: str, *, disabled: bool = True) -> Fill:
    return Fill(user_alias=alias, disabled=disabled)


def disabled_in(engine: Engine) -> set[str]:
    return {one.user_id for one in model_of(engine).values() if isinstance(one, User) and one.disabled}


class FillsWorld:
    """Two sources as lists of records, whose changes are read, read as changes, or pushed."""

    def __init__(self, engine: Engine, way: str) -> None:
        self._engine, self._way = engine, way
        self._structure_of: dict[str, list[Record]] = {}

    def begin(self, **records: list[Record]) -> None:
        self._structure_of = records
        run_refresh(self._engine, self._reads())

    def change(self, source: str, upserted: list[Record], removed: list[Record] | None = None) -> set[str]:
        """The users that are disabled afterwards."""
        gone = {one.key for one in [*upserted, *(removed or [])]}
        self._structure_of[source] = [one for one in self._structure_of[source] if one.key not in gone] + upserted
        if "all keys" in self._way:
            merge_everything(self._engine)
        if "push" in self._way:
            push(self._engine, source, upserted, removed or [])
        else:
            run_refresh(self._engine, self._reads())
        return disabled_in(self._engine)

    def _reads(self) -> dict[str, Read]:
        return {name: Read("complete", [(one, "") for one in found]) for name, found in self._structure_of.items()}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = open_engine(database_url)
    make_tables(made, METADATA)
    yield made
    made.dispose()


@pytest.fixture(params=["push", "push, all keys merged", "read, all keys merged"])
def world(engine: Engine, request: pytest.FixtureRequest) -> FillsWorld:
    return FillsWorld(engine, request.param)


def test_leavers_stay_disabled_if_their_address_changes_hands(world: FillsWorld) -> None:
    others: list[Record] = [person("u5", "ann@x"), person("u6", "bob@x"), person("u7")]
    world.begin(first=others, second=[leaver("ann@x", disabled=False), leaver("bob@x", disabled=False)])
    assert world.change(HR, [leaver("ann@x")]) == {"u5"}
    assert world.change(PEOPLE, [person("u5", "new@x")]) == {"u5"}
    # A colleague takes the address: disabled as well, and for as long as the fill is there.
    assert world.change(PEOPLE, [person("u6", "ann@x")]) == {"u5", "u6"}
    assert world.change(PEOPLE, [person("u6", "bob@x")]) == {"u5", "u6"}
    # A user that is removed and added again is the same user.
    assert world.change(PEOPLE, [], [person("u5")]) == {"u6"}
    assert world.change(PEOPLE, [person("u5", "ann@x")]) == {"u5", "u6"}
    # The source takes it back.
    assert world.change(HR, [leaver("ann@x", disabled=False)]) == set()
    assert world.change(HR, [leaver("ann@x")]) == {"u5"}
    assert world.change(HR, [], [leaver("ann@x")]) == set()
    assert world.change(HR, [leaver("ann@x")]) == {"u5"}


def test_disabling_fill_of_a_shared_alias_disables_all_holders(world: FillsWorld) -> None:
    world.begin(first=[person("u5", "ann@x"), person("u6", "ann@x"), person("u7")], second=[])
    assert world.change(HR, [leaver("ann@x")]) == {"u5", "u6"}
    assert world.change(PEOPLE, [person("u7", "ann@x")]) == {"u5", "u6", "u7"}
    assert world.change(PEOPLE, [person("u5"), person("u6"), person("u7")]) == {"u5", "u6", "u7"}


def test_corrected_address_of_a_fill_frees_the_user_of_the_old_one(world: FillsWorld) -> None:
    world.begin(first=[person("u5", "ann@x"), person("u6", "bob@x")], second=[leaver("bob@x")])
    assert world.change(HR, [leaver("ann@x")], [leaver("bob@x")]) == {"u5"}


def test_each_source_disables_by_itself(world: FillsWorld) -> None:
    world.begin(first=[person("u5", "ann@x"), person("u6")], second=[leaver("x")], third=[])
    assert world.change(HR, [leaver("ann@x")]) == {"u5"}
    assert world.change(OTHER, [leaver("ann@x")]) == {"u5"}
    assert world.change(PEOPLE, [person("u5"), person("u6", "ann@x")]) == {"u5", "u6"}
    assert world.change(HR, [], [leaver("ann@x")]) == {"u5", "u6"}
    assert world.change(OTHER, [leaver("ann@x", disabled=False)]) == set()


def test_bound_users_get_no_other_field_of_the_fill(world: FillsWorld, engine: Engine) -> None:
    gone = Fill(user_alias="ann@x", name="Ann", disabled=True, extra_fields={"site": "b"})
    world.begin(first=[User(user_id="u5", name="", email="", aliases=("ann@x",))], second=[gone])
    world.change(PEOPLE, [User(user_id="u5", name="", email="", aliases=("new@x",))])
    bound = User(user_id="u5", name="", email="", aliases=("new@x",), disabled=True)
    assert [*model_of(engine).values()] == [bound]


def test_candidate_changes_no_binding(engine: Engine) -> None:
    world = FillsWorld(engine, "push")
    world.begin(first=[person("u5", "ann@x"), person("u6")], second=[leaver("ann@x")])
    for _ in range(2):
        with open_candidate(engine) as candidate:
            with Refresh(candidate, clock=lambda: NOW, problems=ProblemList(), on_candidate=True) as refresh:
                refresh.begin([PEOPLE, HR])
                found: list[list[Record]] = [[person("u5"), person("u6", "ann@x")], [leaver("ann@x")]]
                for position, records in enumerate(found):
                    for line, record in enumerate(records):
                        refresh.staging.add(record, str(line), position=position)
                    refresh.staging.end(ReadResult(records=len(records)), position=position)
                refresh.finish()
            assert disabled_in(candidate) == {"u5", "u6"}
            assert len(bindings_of(candidate)) == 2
        assert disabled_in(engine) == {"u5"}
        assert bindings_of(engine) == [("ann@x", "u5")]
        merge_everything(engine)


def bindings_of(engine: Engine) -> list[tuple[str, str]]:
    with reading(engine) as connection:
        rows = connection.execute(text("SELECT user_alias, user_id FROM fill_binding ORDER BY 1, 2"))
        return [(row.user_alias, row.user_id) for row in rows]


users = st.sampled_from(["u1", "u2", "u3"])
aliases = st.sampled_from(["a", "b"])
records = st.one_of(
    st.builds(lambda user, some: person(user, *some), users, st.sets(aliases)),
    st.builds(leaver, aliases, disabled=st.booleans()),
    st.builds(lambda user, disabled: Fill(user_id=user, disabled=disabled), users, st.booleans()),
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "object", "read"]),
        st.booleans(),
        st.sampled_from(SOURCES),
        st.lists(records, max_size=3, unique_by=lambda record: record.key),
        st.lists(st.builds(leaver, aliases) | st.builds(person, users), max_size=1),
    ),
    min_size=4,
    max_size=12,
)
Step = tuple[str, bool, str, list[Record], list[Record]]


class NaiveDirectory:
    """Computes the disabled users from all records of the sources after each change."""

    def __init__(self) -> None:
        self.records: dict[str, dict[tuple[object, str], Record]] = {name: {} for name in SOURCES}
        self._disabled_once: dict[tuple[str, str], set[str]] = {}

    def apply(self, way: str, source: str, upserted: list[Record], removed: list[Record]) -> None:
        """Replaces the same records (``push``), those of one object (``object``), or all of a source (``read``)."""
        mine = self.records[source]
        if way == "push":
            for record in upserted:
                mine[record.key, ""] = record
            for record in removed:
                if record.key not in {one.key for one in upserted}:
                    for key in [key for key in mine if key[0] == record.key]:
                        del mine[key]
        elif way == "object":
            for key in [key for key in mine if key[1] == LEFT]:
                del mine[key]
            mine |= {(record.key, LEFT): record for record in upserted}
        elif upserted:
            # The guard refuses a read without any records.
            self.records[source] = {(record.key, ""): record for record in upserted}

    def disabled(self) -> set[str]:
        people: dict[str, User] = {}
        fills: list[tuple[str, Fill]] = []
        for name in SOURCES:
            for (key, origin), record in sorted(self.records[name].items(), key=lambda item: item[0][1]):
                if isinstance(record, User):
                    people.setdefault(record.user_id, record)
                elif isinstance(record, Fill) and (not origin or (key, "") not in self.records[name]):
                    # A pushed record hides those of objects.
                    fills.append((name, record))
        disabling = [(name, fill) for name, fill in fills if fill.disabled]
        known, self._disabled_once = self._disabled_once, {}
        for name, fill in disabling:
            if fill.user_alias:
                holders = {one.user_id for one in people.values() if fill.user_alias in one.aliases}
                self._disabled_once[name, fill.user_alias] = known.get((name, fill.user_alias), set()) | holders
        away = {one.user_id for one in people.values() if one.disabled}
        away |= {fill.user_id for _, fill in disabling if fill.user_id}
        return away.union(*self._disabled_once.values()) & people.keys()


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps)
def test_disabled_users_stay_disabled_until_the_fill_is_removed(engine: Engine, then: list[Step]) -> None:
    emptied(engine)
    naive = NaiveDirectory()
    first: dict[str, list[Record]] = {
        PEOPLE: [person("u1", "a"), person("u2", "b"), person("u3")],
        HR: [leaver("a")],
        OTHER: [leaver("b", disabled=False)],
    }
    for name, records in first.items():
        naive.apply("read", name, records, [])
    run_refresh(engine, {name: Read("complete", [(one, "") for one in records]) for name, records in first.items()})
    assert disabled_in(engine) == naive.disabled() == {"u1"}
    ways: dict[str, Callable[[str, list[Record], list[Record]], object]] = {
        "push": lambda source, upserted, removed: push(
            engine, source, upserted, [one for one in removed if one.key not in {other.key for other in upserted}]
        ),
        "object": lambda source, upserted, _: read_changes(
            engine, ObjectChanges(SOURCES.index(source), [(one, LEFT) for one in upserted], [] if upserted else [LEFT])
        ),
        "read": lambda *_: run_refresh(
            engine,
            {
                name: Read("complete", [(one, origin) for (_, origin), one in naive.records[name].items()])
                for name in SOURCES
            },
        ),
    }
    for way, by_key, source, upserted, removed in then:
        naive.apply(way, source, upserted, removed)
        if not by_key:
            merge_everything(engine)
        ways[way](source, upserted, removed)
        assert disabled_in(engine) == naive.disabled()
