"""In any order of reads and pushes, no user has access that the application's own tables deny."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from app.access.export import export_records
from app.access.origins import find_origins
from app.access.records import Grant
from app.access.refresh.duplicates import drop_duplicates
from app.commands.schema import METADATA
from app.directory.source import Verdict
from app.foundation.database.engine import open_engine, reading, writing
from app.sync.plan.selection import Selection
from app.sync.runs.directory_reads import RefreshReport
from tests.directory.databases import SORTS, opened
from tests.tables import make_tables
from tests.worlds.application import DOCUMENTS, LOGINS, ROLES, USERS, Application
from tests.worlds.installation import Fault, Installation, RecordState

Make = Callable[[], Installation]


@contextmanager
def making(database_url: str, sort: str, folder: Path, *, by_rules: bool) -> Iterator[Make]:
    """What makes a new installation, on the same databases as the one before."""
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    with opened(sort, folder) as database:
        application = Application(database.engine)
        url = database.read_url.render_as_string(hide_password=False)

        def make() -> Installation:
            with writing(engine) as connection:
                for table in reversed(METADATA.sorted_tables):
                    connection.execute(table.delete())
            application.begin()
            return Installation(engine, application, url, by_rules=by_rules, between=database.between)

        yield make
        database.engine.dispose()
    engine.dispose()


@pytest.fixture(params=[False, True], ids=["records", "rules"])
def make(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[Make]:
    with making(database_url, "sqlite", tmp_path, by_rules=request.param) as make:
        yield make


STEPS = ("insert", "push", "read", "delete", "push again")


def orders() -> Iterator[Sequence[str]]:
    for order in permutations(STEPS):
        if order.index("insert") < order.index("delete") and order.index("insert") < order.index("push"):
            yield order


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_deleted_share_is_no_access_in_any_order(make: Make) -> None:
    """The last read is one of changes, so what it leaves must be what the database holds."""
    installation = make()
    application = installation.application
    installation.read()
    wrong = []
    for number, order in enumerate(orders()):
        share, pushed = f"share-{number}", application.record("grant", "d1", "ann")
        for step in order:
            if step == "insert":
                application.put("share", share, doc="d1", person="ann", role="viewer")
                pushed = application.record("grant", "d1", "ann")
            elif step == "delete":
                application.drop("share", share)
            elif step == "read":
                installation.read()
            else:
                installation.push("app", pushed)
        source = installation.read().sources[0]
        assert (source.verdict, source.answered) == (Verdict.COMPLETE, "changes")
        if installation.too_much():
            wrong.append(order)
            installation.read(full=True)
    assert wrong == []


ANN = {("ann", "d1"): "editor"}
NOBODY: dict[tuple[str, str], str] = {}


def test_a_pushed_record_counts_instead_of_what_objects_give_until_a_read(make: Make) -> None:
    installation = make()
    application = installation.application
    application.put("share", "s1", doc="d1", person="ann", role="editor")
    application.put("share", "s2", doc="d1", person="ann", role="viewer")
    installation.read()
    assert installation.allowed() == ANN
    application.put("share", "s1", doc="d1", person="ann", role="viewer")
    answer = installation.push("app", application.record("grant", "d1", "ann"))
    assert answer["counts"] == {"added": 0, "updated": 1, "unchanged": 0, "removed": 0, "absent": 0}
    assert installation.allowed() == {("ann", "d1"): "viewer"}
    # Of the objects' records, the read must report s1 alone.
    installation.read()
    assert installation.allowed() == {("ann", "d1"): "viewer"}
    application.drop("share", "s1")
    application.drop("share", "s2")
    answer = installation.push("app", application.record("grant", "d1", "ann"))
    assert answer["counts"] == {"added": 0, "updated": 0, "unchanged": 0, "removed": 1, "absent": 0}
    assert installation.allowed() == NOBODY


def test_an_object_that_was_read_while_it_was_pushed_counts_after_the_push(make: Make) -> None:
    """The cursor has passed it: no later read of changes reports it."""
    installation = make()
    application = installation.application
    installation.read()
    application.put("share", "s1", doc="d1", person="ann", role="editor")
    # The row with the number of the cursor itself is read again.
    application.put("share", "s2", doc="d2", person="bob", role="viewer")
    pushed = application.record("grant", "d1", "ann")
    installation.meanwhile(lambda: installation.push("app", pushed))
    for _ in range(3):
        installation.read()
        assert installation.allowed() == ANN | {("bob", "d2"): "viewer"}


def test_a_removal_of_what_was_not_known_yet_holds_against_a_read_under_way(make: Make) -> None:
    """The read has the row in its snapshot, and the push removes nothing that is stored."""
    installation = make()
    application = installation.application
    installation.read()
    application.put("share", "s1", doc="d1", person="ann", role="editor")

    def meanwhile() -> None:
        application.drop("share", "s1")
        answer = installation.push("app", application.record("grant", "d1", "ann"))
        assert answer["counts"]["absent"] == 1

    installation.meanwhile(meanwhile)
    for _ in range(2):
        installation.read()
        assert installation.allowed() == NOBODY


def test_a_removal_between_reading_and_comparing_holds(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    installation = make()
    application = installation.application
    installation.read()
    application.put("share", "s1", doc="d1", person="ann", role="editor")
    pushed: list[dict[str, Any]] = []

    def push_first(*arguments: Any) -> None:
        application.drop("share", "s1")
        pushed.append(installation.push("app", application.record("grant", "d1", "ann")))
        drop_duplicates(*arguments)

    monkeypatch.setattr("app.access.refresh.refresh.drop_duplicates", push_first)
    installation.read()
    assert pushed
    assert installation.allowed() == NOBODY


def test_a_part_is_not_asked_for_while_the_source_may_deny_what_was_pushed(make: Make) -> None:
    installation = make()
    application = installation.application
    installation.read()
    application.put("share", "s1", doc="d1", person="ann", role="editor")
    installation.push("app", application.record("grant", "d1", "ann"))
    application.drop("share", "s1")
    assert installation.allowed() == ANN
    assert installation.read(selection=Selection.of([], ["ann"])).sources[0].answered == "changes"
    assert installation.allowed() == NOBODY
    assert installation.read(selection=Selection.of([], ["ann"])).sources[0].answered == "part"


def test_a_restore_undoes_what_a_part_found(make: Make) -> None:
    """The backup is from between the complete read and the part."""
    installation = make()
    application = installation.application
    application.put("share", "s1", doc="d1", person="ann", role="viewer")
    application.put("share", "s2", doc="d2", person="bob", role="viewer")
    installation.read()
    backup, allowed = application.save(), installation.allowed()
    application.put("share", "s1", doc="d1", person="ann", role="editor")
    assert installation.read(selection=Selection.of([], ["ann"])).sources[0].answered == "part"
    assert installation.allowed() == allowed | ANN
    application.restore(backup)
    installation.read()
    assert installation.allowed() == allowed
    assert installation.read().sources[0].answered == "changes"


def test_an_explanation_names_the_push_and_not_what_it_hides(make: Make) -> None:
    installation = make()
    application = installation.application
    application.put("share", "s1", doc="d1", person="ann", role="editor")
    installation.read()
    installation.push("app", application.record("grant", "d1", "ann"))
    with reading(installation.engine) as connection:
        grants = [record for record in export_records(connection) if isinstance(record, Grant)]
        [origins] = find_origins(connection, grants).values()
    assert [one.place for one in origins] == ["push 1, upsert[0]"]


class Change(NamedTuple):
    """A row is put, or dropped; and when the application pushes that."""

    table: str
    row_id: str
    columns: dict[str, Any] | None
    pushed: str
    """``at once``, ``late`` or ``never``."""


class Late(NamedTuple):
    """The oldest of the late pushes arrives."""


class Read(NamedTuple):
    """A read, which may break."""

    of: str
    """``changes``, ``everything``, ``elsewhere`` (changes, by another node), ``organization`` or ``user``."""
    fault: Fault
    source: int
    share: float
    meanwhile: list[Any]


class Chance:
    """Draws what happens next. Most of the time people and documents are there, so that shares matter."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def step(self) -> Change | Late | Read:
        return self._one_of((60, self._change), (8, Late), (32, self._read))

    def _change(self) -> Change:
        pick, chance = self._random.choice, self._random.random
        table = self._one_of((8, "share"), (3, "doc"), (2, "invite"), (2, "person"), (2, "member"), (2, "leaver"))
        user, document, role = pick(USERS), pick(DOCUMENTS), pick(ROLES)
        drawn: dict[str, tuple[str, float, dict[str, Any]]] = {
            "share": (pick(["s1", "s2"]), 0.5, {"doc": document, "person": user, "role": role}),
            "invite": ("i1", 0.5, {"doc": document, "login": pick(LOGINS), "role": role}),
            "doc": (document, 0.1, {"title": document, "access": _access(chance()), "owner": pick([None, user])}),
            "person": (user, 0.1, {"name": user, "login": self._login(user), "off": int(chance() < 0.2)}),
            "member": (user, 0.2, {"person": user, "role": role}),
            "leaver": (user, 0.6, {"person": user, "has_left": int(chance() < 0.5)}),
        }
        row_id, gone, columns = drawn[table]
        return Change(table, row_id, None if chance() < gone else columns, pick(["at once", "late", "never"]))

    def _login(self, user: str) -> str:
        return self._one_of((3, f"{user}@acme.example"), (1, self._random.choice(LOGINS)))

    def _read(self) -> Read:
        of = self._one_of((12, "changes"), (1, "everything"), (2, "organization"), (2, "user"))
        fault = self._one_of((5, Fault.NONE), *((1, one) for one in Fault), (2, Fault.MEANWHILE))
        elsewhere = Read("elsewhere", Fault.NONE, 0, 0, [])
        meanwhile = [
            self._one_of((6, self._change), (3, Late), (2, elsewhere)) for _ in range(self._random.randint(1, 3))
        ]
        return Read(of, fault, self._random.choice([0, 0, 1]), self._random.random(), meanwhile)

    def _one_of(self, *weighed: tuple[int, Any]) -> Any:
        weights, values = zip(*weighed, strict=True)
        [value] = self._random.choices(values, weights)
        return value() if callable(value) and not isinstance(value, Fault) else value


def _access(chance: float) -> str:
    return "restricted" if chance < 0.8 else "organizationPrivate"


class Trial:
    """An installation to which things happen."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self._late: list[list[RecordState]] = []
        self._removed_late = False
        """Whether a late removal arrived since the last read of everything: it may have removed what came after it."""
        installation.read()

    def do(self, step: Change | Late | Read) -> None:
        if isinstance(step, Change):
            self._change(step)
        elif isinstance(step, Late):
            self.arrive(1)
        else:
            self._read(step)

    def do_all(self, steps: Sequence[Change | Late | Read]) -> None:
        for step in steps:
            self.do(step)

    def arrive(self, number: int) -> None:
        """So many late pushes arrive, in their order."""
        for pushed in self._late[:number]:
            self.installation.push("app", *pushed)
            self._removed_late = self._removed_late or not all(is_there for _, is_there in pushed)
        del self._late[:number]

    def end(self) -> None:
        """Late pushes arrive, and the source is read."""
        self.arrive(len(self._late))
        self._check(self.installation.read(), full=False)
        self._check(self.installation.read(full=True), full=True)

    def _change(self, step: Change) -> None:
        application = self.installation.application
        pushed = [application.record(*one) for one in application.change(step.table, step.row_id, step.columns)]
        if step.pushed == "late" or (self._late and step.pushed == "at once"):
            # They arrive in the order of their sequences.
            self._late.append(pushed)
        elif step.pushed == "at once" and pushed:
            self.installation.push("app", *pushed)

    def _read(self, step: Read) -> None:
        installation = self.installation
        if step.of == "elsewhere":
            installation.read(elsewhere=True)
            return
        breaking = installation.breaking[step.source]
        breaking.fault, breaking.share = step.fault, step.share
        if step.fault is Fault.CUT and installation.between is not None:
            with installation.between.cut(int(4_000 * step.share)):
                installation.read(full=step.of == "everything")
            return
        breaking.meanwhile = lambda: self.do_all(step.meanwhile)
        if step.of in {"organization", "user"}:
            asked = Selection.of(["acme"] if step.of == "organization" else [], ["ann"] if step.of == "user" else [])
            installation.read(selection=asked)
            return
        report = installation.read(full=step.of == "everything")
        if step.fault is not Fault.MEANWHILE or not step.meanwhile:
            self._check(report, full=step.of == "everything")

    def _check(self, report: RefreshReport, *, full: bool) -> None:
        """After complete reads nobody has too much; after those of everything nobody has too little."""
        if {one.verdict for one in report.sources} != {Verdict.COMPLETE}:
            return
        assert self.installation.too_much() == []
        self._removed_late = self._removed_late and not full
        if not self._removed_late:
            assert self.installation.allowed() == self.installation.application.allowed()


def tried(make: Make, seed: int, steps: int) -> None:
    """Lets things happen; a failure names all of them."""
    chance, trial = Chance(seed), Trial(make())
    done: list[Change | Late | Read] = []
    try:
        for _ in range(steps):
            done.append(chance.step())
            trial.do(done[-1])
        trial.end()
    except AssertionError as error:
        error.add_note("after " + "\n".join(map(str, done)))
        raise


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("by_rules", [False, True], ids=["records", "rules"])
@pytest.mark.parametrize("seed", range(2))
def test_access_equals_that_of_the_tables(seed: int, by_rules: bool, tmp_path: Path) -> None:
    """Reads of everything, of changes and of parts, pushes in time, late and lost, in any order and with failures."""
    with making(f"sqlite:///{tmp_path}/usher.db", "sqlite", tmp_path, by_rules=by_rules) as make:
        tried(make, seed, 60)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sort", SORTS[1:])
def test_access_equals_that_of_tables_on_a_server(sort: str, tmp_path: Path) -> None:
    """The same with real servers, whose connections are cut."""
    with making(f"sqlite:///{tmp_path}/usher.db", sort, tmp_path, by_rules=sort == "mysql") as make:
        tried(make, 7, 25)
