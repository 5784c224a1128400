"""Complete reads of sources into the access model, checks, and exports."""

import shlex
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest
from sqlalchemy import Engine, text

from app.access.candidate import open_candidate
from app.access.export import export_records, model_counts
from app.access.records import Document, Folder, Grant, Group, GroupMember, Key, Organization, Record, User
from app.access.revisions import current_revision, latest_revision
from app.access.source_states import SourceState, source_states
from app.commands.directory_wire import object_from_report
from app.commands.schema import METADATA
from app.directory.source import EVERYTHING, End, Found, Malformed, Reading, ReadRequest, Remark, Source, Verdict
from app.foundation.database.engine import open_engine, reading
from app.sync.runs.directory_reads import (
    ReadOptions,
    RefreshReport,
    UnknownSourceError,
    check,
    export,
    forget,
    read_directory,
)
from tests.tables import make_tables
from tests.worlds.files import file_source

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
NOW_MS = 1_793_534_400_000
COMPLETE = End(Verdict.COMPLETE)
FAILED = End(Verdict.FAILED, "gone fishing")


class GivenSource:
    """A source with given steps."""

    def __init__(self, name: str, *steps: Found | Malformed | Remark | End | Record) -> None:
        self.name = name
        self._steps = steps

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        for line, step in enumerate(self._steps, 1):
            yield Found(step, f"{self.name}:{line}") if not isinstance(step, tuple) else step
        if not self._steps or not isinstance(self._steps[-1], End):
            yield COMPLETE


def user(user_id: str, name: str = "Name") -> User:
    return User(user_id=user_id, name=name, email="")


def organization(organization_id: str = "acme") -> Organization:
    return Organization(organization_id=organization_id, organization_name=organization_id)


def folder(folder_id: str, parent: str | None = None) -> Folder:
    return Folder(organization_id="acme", folder_id=folder_id, folder_name=folder_id, parent_folder_id=parent)


def group(group_id: str) -> Group:
    return Group(organization_id="acme", organization_user_group_id=group_id, group_name=group_id)


def nested(group_id: str, member: str) -> GroupMember:
    return GroupMember(organization_id="acme", organization_user_group_id=group_id, member_group_id=member)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield engine
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    engine.dispose()


Refresh = Callable[..., RefreshReport]


@pytest.fixture
def run(engine: Engine) -> Refresh:
    def run(*sources: Source, accept_empty: tuple[str, ...] = ()) -> RefreshReport:
        return read_directory(engine, sources, ReadOptions(accept_empty=accept_empty), clock=lambda: NOW)

    return run


def model(engine: Engine) -> dict[Key, Record]:
    with reading(engine) as connection:
        return {record.key: record for record in export_records(connection)}


def names(engine: Engine) -> dict[str, str]:
    """Of the users."""
    return {record.user_id: record.name for record in model(engine).values() if isinstance(record, User)}


def states(engine: Engine) -> dict[str, SourceState]:
    with reading(engine) as connection:
        return {state.name: state for state in source_states(connection)}


def test_refresh_increments_the_revision_only_for_changes(engine: Engine, run: Refresh) -> None:
    with reading(engine) as connection:
        assert current_revision(connection) == 0
        assert latest_revision(connection)[1] is None
    first = run(GivenSource("a", organization(), user("ada")))
    assert (first.revision, first.changed) == (1, True)
    again = run(GivenSource("a", user("ada"), organization()))
    assert (again.revision, again.changed) == (1, False)
    later = run(GivenSource("a", organization(), user("ada", "Ada"), user("bob")))
    assert (later.revision, later.changed) == (2, True)
    assert (later.changes["user"].added, later.changes["user"].updated, later.changes["user"].removed) == (1, 1, 0)
    with reading(engine) as connection:
        assert current_revision(connection) == 2
        assert latest_revision(connection)[1] == NOW_MS
        assert model_counts(connection) | {"user": 2, "organization": 1} == model_counts(connection)
        change_counts = (
            connection.execute(text("SELECT changes FROM access_revision ORDER BY revision")).scalars().all()
        )
    assert [orjson.loads(changes) for changes in change_counts] == [
        {
            "organization": {"added": 1, "updated": 0, "removed": 0},
            "user": {"added": 1, "updated": 0, "removed": 0},
        },
        {"user": {"added": 1, "updated": 1, "removed": 0}},
    ]


def test_age_of_the_model_is_that_of_the_current_revision_after_the_clock_was_set_back(engine: Engine) -> None:
    times = [NOW, NOW - timedelta(days=1)]
    read_directory(engine, [GivenSource("a", user("ada"))], clock=lambda: times[0])
    read_directory(engine, [GivenSource("a", user("ada", "Ada L."))], clock=lambda: times[1])
    with reading(engine) as connection:
        assert current_revision(connection) == 2
        assert latest_revision(connection)[1] == NOW_MS - 24 * 60 * 60 * 1000


def test_source_forgotten_during_a_dry_run_is_not_in_its_result(engine: Engine, run: Refresh) -> None:
    run(GivenSource("a", user("ada")), GivenSource("b", user("bob")))

    class Forgetting(GivenSource):
        def read(self, request: ReadRequest = EVERYTHING) -> Reading:
            forget(engine, "b", [self], clock=lambda: NOW)
            yield from super().read(request)

    with open_candidate(engine) as candidate:
        source = Forgetting("a", user("ada"), user("new"))
        report = read_directory(candidate, [source], clock=lambda: NOW, on_candidate=True)
        assert report.retained_sources == ()
        assert list(states(candidate)) == ["a"]
        assert set(model(candidate)) == {("user", "ada"), ("user", "new")}


def test_refresh_of_an_empty_directory_is_a_first_revision(engine: Engine, run: Refresh) -> None:
    assert run(GivenSource("a", FAILED)).revision == 0
    report = run(GivenSource("a"))
    assert (report.revision, report.changed) == (1, False)
    assert run(GivenSource("a")).revision == 1


def test_refresh_stores_canonical_payloads(engine: Engine, run: Refresh) -> None:
    further = {"zone": "é", "a": {"c": 1, "b": [None, True]}}
    run(GivenSource("a", User(user_id="ada", name="Ada", email="a@b.example", initial="A", extra_fields=further)))
    with reading(engine) as connection:
        payload, digest = connection.execute(text("SELECT payload, digest FROM model_user")).one()
    expected = (
        '{"a":{"b":[null,true],"c":1},"email":"a@b.example","initial":"A","name":"Ada","userId":"ada","zone":"é"}'
    )
    assert payload == expected
    assert len(digest) == 32
    run(GivenSource("a", User(user_id="ada", name="Ada", email="a@b.example", initial="A", extra_fields={"zone": "e"})))
    with reading(engine) as connection:
        assert connection.execute(text("SELECT digest FROM model_user")).scalar_one() != digest


def test_incomplete_read_removes_nothing(engine: Engine, run: Refresh) -> None:
    run(GivenSource("a", user("ada"), user("bob")), GivenSource("b", user("cleo")))
    report = run(
        GivenSource("a", user("bob", "Bob"), Malformed("a:2", "userId: is empty"), End(Verdict.PARTIAL, "1 malformed")),
        GivenSource("b", user("dan"), FAILED),
    )
    assert {key[1]: record.name for key, record in model(engine).items() if isinstance(record, User)} == {
        "ada": "Name",
        "bob": "Bob",
        "cleo": "Name",
    }
    assert [(s.name, s.verdict, s.reason, s.records, s.malformed) for s in report.sources] == [
        ("a", Verdict.PARTIAL, "1 malformed", 1, 1),
        ("b", Verdict.FAILED, "gone fishing", 1, 0),
    ]
    assert report.problems.counts == {"malformed": 1}
    assert (states(engine)["a"].last_verdict, states(engine)["a"].last_good_at) == ("partial", NOW_MS)
    assert (states(engine)["b"].last_verdict, states(engine)["b"].last_reason) == ("failed", "gone fishing")
    assert states(engine)["b"].last_good_at == NOW_MS
    run(GivenSource("a", user("bob")), GivenSource("b", FAILED))
    assert set(model(engine)) == {("user", "bob"), ("user", "cleo")}


def test_refresh_takes_a_source_without_a_verdict_as_failed(engine: Engine, run: Refresh) -> None:
    class Silent(GivenSource):
        def read(self, request: ReadRequest = EVERYTHING) -> Reading:
            yield Found(user("ada"), "a:1")

    assert run(Silent("a")).sources[0].verdict is Verdict.FAILED
    assert model(engine) == {}


def test_refresh_takes_a_source_that_is_suddenly_empty_as_failed_until_confirmed(engine: Engine, run: Refresh) -> None:
    run(GivenSource("a", user("ada")), GivenSource("b", user("bob")))
    report = run(GivenSource("a"), GivenSource("b", user("bob")))
    assert report.sources[0].verdict is Verdict.FAILED
    assert "--accept-empty a" in report.sources[0].reason
    assert len(model(engine)) == 2
    report = run(GivenSource("a"), GivenSource("b", user("bob")), accept_empty=("a",))
    assert report.sources[0].verdict is Verdict.COMPLETE
    assert set(model(engine)) == {("user", "bob")}
    assert run(GivenSource("a"), GivenSource("b", user("bob"))).sources[0].verdict is Verdict.COMPLETE


def test_refresh_refuses_to_accept_an_unknown_source_as_empty(run: Refresh) -> None:
    with pytest.raises(UnknownSourceError, match="no source is called 'c'; there are: a, b"):
        run(GivenSource("a"), GivenSource("b"), accept_empty=("c",))


def test_records_of_a_removed_source_stay_until_it_is_forgotten(engine: Engine, run: Refresh) -> None:
    run(GivenSource("a", user("ada")), GivenSource("b", user("bob")))
    report = run(GivenSource("a", user("ada", "Ada L.")))
    assert report.retained_sources == ("b",)
    assert set(model(engine)) == {("user", "ada"), ("user", "bob")}
    with pytest.raises(UnknownSourceError, match=r"'a' is configured: take it out of directory.sources first"):
        forget(engine, "a", [GivenSource("a")], clock=lambda: NOW)
    with pytest.raises(UnknownSourceError, match="a source called 'c'; no longer configured: b"):
        forget(engine, "c", [GivenSource("a")], clock=lambda: NOW)
    replaced = forget(engine, "b", [GivenSource("a")], clock=lambda: NOW).replaced
    assert (replaced.changed, replaced.revision, replaced.changes["user"].removed) == (True, 3, 1)
    assert set(model(engine)) == {("user", "ada")}
    assert list(states(engine)) == ["a"]
    assert states(engine)["a"].is_configured
    assert run(GivenSource("a", user("ada", "Ada L."))).retained_sources == ()


def test_forgetting_keeps_records_of_other_sources(engine: Engine, run: Refresh) -> None:
    run(GivenSource("old name", user("ada", "old"), user("bob", "old")))
    report = run(GivenSource("new name", user("ada", "new")))
    assert names(engine) == {"ada": "new", "bob": "old"}
    # Each of its records stands behind another's: that is no problem of the directory's.
    assert (report.problems.total, report.retained_sources) == (0, ("old name",))
    replaced = forget(engine, "old name", [], clock=lambda: NOW).replaced
    assert replaced.changes["user"].total == 1
    assert names(engine) == {"ada": "new"}


def test_nothing_can_be_forgotten_where_nothing_was_read(engine: Engine) -> None:
    with pytest.raises(UnknownSourceError, match="no longer configured: none"):
        forget(engine, "a", [], clock=lambda: NOW)


def test_unconfigured_source_without_records_is_forgotten(engine: Engine, run: Refresh) -> None:
    run(GivenSource("a", user("ada")), GivenSource("never read", FAILED))
    assert run(GivenSource("a", user("ada"))).retained_sources == ()
    assert list(states(engine)) == ["a"]


def test_command_that_accepts_an_empty_source_can_be_copied(run: Refresh) -> None:
    run(GivenSource("/srv/HR export.jsonl", user("ada")))
    reason = run(GivenSource("/srv/HR export.jsonl")).sources[0].reason
    command = shlex.split(reason.partition("confirm it once: ")[2])
    assert command == ["usher", "directory", "refresh", "--accept-empty", "/srv/HR export.jsonl"]


@pytest.mark.parametrize("steps", [(), (FAILED,)], ids=["empty", "unreadable"])
def test_renamed_source_removes_no_access(engine: Engine, run: Refresh, steps: tuple[End, ...]) -> None:
    run(GivenSource("old.jsonl", user("ada")))
    report = run(GivenSource("new.jsonl", *steps))
    assert (report.changed, report.retained_sources) == (False, ("old.jsonl",))
    assert report.sources[0].verdict is Verdict.FAILED
    assert set(model(engine)) == {("user", "ada")}


def test_empty_first_read_takes_effect_once_it_is_accepted(engine: Engine, run: Refresh) -> None:
    run(GivenSource("old.jsonl", user("ada")))
    reason = run(GivenSource("new.jsonl")).sources[0].reason
    assert reason.startswith("is read for the first time and is empty, while 1 record of other sources is in force")
    assert reason.endswith("usher directory refresh --accept-empty new.jsonl")
    assert run(GivenSource("new.jsonl"), accept_empty=("new.jsonl",)).sources[0].verdict is Verdict.COMPLETE
    assert run(GivenSource("new.jsonl")).sources[0].verdict is Verdict.COMPLETE
    # The records of the other source are still in force.
    assert set(model(engine)) == {("user", "ada")}
    assert forget(engine, "old.jsonl", [], clock=lambda: NOW).replaced.changed
    assert model(engine) == {}


def test_first_source_with_a_key_wins(engine: Engine, run: Refresh) -> None:
    first, second = GivenSource("a", user("ada", "of a")), GivenSource("b", user("bob"), user("ada", "of b"))
    report = run(first, second)
    assert report.problems.counts == {"ownedElsewhere": 1}
    assert (
        str(report.problems.listed[0]) == "b:2: user userId='ada' belongs to the source 'a', which provides it at a:1"
    )
    assert model(engine)["user", "ada"] == user("ada", "of a")
    turned = run(second, first)
    assert turned.changes["user"].updated == 1
    assert model(engine)["user", "ada"] == user("ada", "of b")
    assert turned.problems.listed[0].source == "a"


def test_refresh_takes_the_last_of_duplicates_and_reports_the_others(engine: Engine, run: Refresh) -> None:
    report = run(GivenSource("a", user("ada", "1"), user("ada", "2"), user("bob"), user("ada", "3")))
    assert model(engine)["user", "ada"] == user("ada", "3")
    assert report.sources[0].verdict is Verdict.COMPLETE
    assert report.problems.counts == {"duplicate": 2}
    assert [str(problem) for problem in report.problems.listed] == [
        "a:1: user userId='ada' is repeated at a:4, which replaces this record",
        "a:2: user userId='ada' is repeated at a:4, which replaces this record",
    ]


def test_refresh_reports_records_without_effect(run: Refresh) -> None:
    report = run(
        GivenSource(
            "a",
            organization(),
            user("ada"),
            Document(organization_id="acme", document_id="d", document_name="D", folder_id="nowhere"),
            Grant(organization_id="acme", document_id="d", user_id="ada"),
            Grant(organization_id="other", folder_id="f", user_id="ada"),
        )
    )
    assert report.sources[0].verdict is Verdict.COMPLETE
    assert [str(problem) for problem in report.problems.listed] == [
        (
            "a:3: document organizationId='acme', documentId='d' refers to the folder 'nowhere' (folderId), "
            "which is nowhere in the directory"
        ),
        (
            "a:4: grant organizationId='acme', documentId='d', userId='ada' refers to the document 'd' (documentId), "
            "which is left out itself"
        ),
        (
            "a:5: grant organizationId='other', folderId='f', userId='ada' refers to the folder 'f' (folderId), "
            "which is nowhere in the directory"
        ),
    ]


def test_refresh_reports_folder_cycles_and_what_is_below(run: Refresh) -> None:
    folders = [folder("top"), folder("x", "y"), folder("y", "x"), folder("self", "self"), folder("z", "y")]
    report = run(GivenSource("a", organization(), *folders, folder("w", "z")))
    assert report.problems.counts == {"folderCycle": 3, "dangling": 2}
    prefix = "folder organizationId='acme', "
    assert {problem.reason.removeprefix(prefix) for problem in report.problems.listed} == {
        "folderId='self' is in a cycle of folders",
        "folderId='x' is in a cycle of folders",
        "folderId='y' is in a cycle of folders",
        "folderId='z' refers to the folder 'y' (parentFolderId), which is left out itself",
        "folderId='w' refers to the folder 'z' (parentFolderId), which is left out itself",
    }


def test_refresh_keeps_group_cycles_and_reports_each_once(engine: Engine, run: Refresh) -> None:
    groups = [group(name) for name in "abcdefgh"]
    # a-b-c in a circle, d between that circle and the next (e-f), g in itself, h inside g and leading nowhere.
    edges = [nested(*pair) for pair in ("ab", "bc", "ca", "cd", "de", "ef", "fe", "gg", "gh")]
    report = run(GivenSource("s", organization(), *groups, *edges))
    assert report.problems.counts == {"groupCycle": 3}
    assert [str(problem) for problem in report.problems.listed] == [
        "s:10: the groups 'a', 'b', 'c' of 'acme' contain each other; all have the union of their members",
        "s:15: the groups 'e', 'f' of 'acme' contain each other; all have the union of their members",
        "s:17: the group 'g' of 'acme' contains itself",
    ]
    assert sum(isinstance(record, GroupMember) for record in model(engine).values()) == len(edges)


def test_refresh_reports_the_same_problems_again_at_their_new_places(run: Refresh) -> None:
    run(GivenSource("a", organization(), folder("f", "gone")))
    report = run(GivenSource("a", Remark("a:1", "odd"), Remark("a:2", "odd"), organization(), folder("f", "gone")))
    assert report.changed is False
    assert [problem.place for problem in report.problems.listed] == ["a:1", "a:2", "a:4"]


def test_refresh_counts_all_problems_and_keeps_the_first_hundred(run: Refresh) -> None:
    malformed = [Malformed(f"a:{line}", "no") for line in range(60)]
    duplicates = [user("twice")] * 61
    dangling = [folder(str(number), "gone") for number in range(70)]
    report = run(GivenSource("a", *malformed, *duplicates, organization(), *dangling, End(Verdict.PARTIAL, "some")))
    assert report.problems.counts == {"malformed": 60, "duplicate": 60, "dangling": 70}
    assert report.problems.total == 190
    assert len(report.problems.listed) == 100


def test_refresh_carries_any_text_unharmed(engine: Engine, run: Refresh) -> None:
    odd = [
        "a/b",
        "it's",
        '"quoted"',
        " blank ",
        "%s :name $1 {}",
        "line\nbreak",
        "tab\t",
        "\\N",
        "𝔘🙂",
        "é" * 256,
        "Ä",
        "ä",
    ]
    records = [user(text, name=text) for text in odd]
    run(GivenSource("a'; --", *records))
    assert model(engine) == {record.key: record for record in records}


def test_interrupted_refresh_changes_nothing(engine: Engine, run: Refresh) -> None:
    class Broken(GivenSource):
        def read(self, request: ReadRequest = EVERYTHING) -> Reading:
            yield Found(user("bob"), "a:1")
            raise RuntimeError("a defect, not the outside world")

    run(GivenSource("a", user("ada")))
    assert run(Broken("a")).sources[0].reason == "an error of the program, RuntimeError; the log has the details"
    assert set(model(engine)) == {("user", "ada")}
    assert run(GivenSource("a", user("ada"))).revision == 1


def test_of_two_reads_of_a_source_the_one_that_began_last_wins(engine: Engine, run: Refresh) -> None:
    class Overtaken(GivenSource):
        def read(self, request: ReadRequest = EVERYTHING) -> Reading:
            yield Found(user("old"), "a:1")
            run(GivenSource("a", user("new")))
            yield COMPLETE

    report = run(Overtaken("a"))
    assert set(model(engine)) == {("user", "new")}
    assert report.sources[0].verdict is Verdict.FAILED
    assert report.revision == 1


def test_refreshes_at_the_same_time_leave_a_whole_model(engine: Engine) -> None:
    barrier = threading.Barrier(3)
    failures: list[BaseException] = []

    def records_of(number: int) -> list[Record]:
        return [
            organization(),
            *(user(f"{number}-{i}") for i in range(50)),
            *(folder(f"{number}-{i}") for i in range(50)),
        ]

    def refresh_often(number: int) -> None:
        try:
            barrier.wait()
            for _ in range(3):
                # Each removes the others' records, which is more than the guard allows.
                read_directory(
                    engine, [GivenSource("a", *records_of(number))], ReadOptions(accept_shrink=["a"]), clock=lambda: NOW
                )
        except BaseException as error:  # noqa: BLE001 - the main thread checks it
            failures.append(error)

    threads = [threading.Thread(target=refresh_often, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    held = model(engine)
    assert held in [{record.key: record for record in records_of(number)} for number in range(3)]
    with reading(engine) as connection:
        revisions = connection.execute(text("SELECT revision FROM access_revision ORDER BY revision")).scalars().all()
    assert revisions == list(range(1, len(revisions) + 1))


class ManyUsers(GivenSource):
    def __init__(self, count: int) -> None:
        super().__init__("many")
        self._count = count

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        for number in range(self._count):
            yield Found(user(f"user-{number}"), f"many:{number}")
        yield COMPLETE


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.extended
def test_refresh_needs_no_more_memory_for_more_records(engine: Engine, run: Refresh) -> None:
    run(ManyUsers(10))
    with peak_memory() as peak:
        run(ManyUsers(10_000))
        small = peak()
    with peak_memory() as peak:
        run(ManyUsers(40_000))
        large = peak()
    assert large < small + 4 * 1024 * 1024


class Count:
    def __init__(self) -> None:
        self.total = 0

    def advance(self, n: int) -> None:
        self.total += n


def test_refresh_reports_the_number_of_records(engine: Engine) -> None:
    count = Count()
    read_directory(engine, [ManyUsers(2_500), GivenSource("a", user("ada"))], clock=lambda: NOW, progress=count)
    assert count.total == 2_501


def test_object_from_report_is_json(run: Refresh) -> None:
    report = run(GivenSource("a", organization(), folder("f", "gone"), user("ada")))
    fields = orjson.loads(orjson.dumps(object_from_report(report)))
    assert fields["changes"] == {
        "organization": {"added": 1, "updated": 0, "removed": 0},
        "user": {"added": 1, "updated": 0, "removed": 0},
        "folder": {"added": 1, "updated": 0, "removed": 0},
    }
    assert fields["sources"] == [
        {
            "name": "a",
            "verdict": "complete",
            "reason": "",
            "records": 3,
            "malformed": 0,
            "seconds": 0.0,
            "answered": "everything",
            "refused": "",
            "losses": [],
            "guard": {"count": 20, "percent": 20},
        }
    ]
    assert fields["problemCounts"] == {"dangling": 1}
    assert "revision" not in object_from_report(check([GivenSource("a")], clock=lambda: NOW))


def test_export_is_read_back_as_the_same_model(engine: Engine, run: Refresh, tmp_path: Path) -> None:
    demo = file_source(Path(__file__).parents[3] / "config" / "demo" / "directory.yaml")
    assert run(demo).problems.total == 0
    exported = tmp_path / "export.jsonl"
    exported.write_bytes(b"".join(orjson.dumps(fields) + b"\n" for fields in export(engine)))
    before = model(engine)
    report = run(file_source(exported))
    assert (report.revision, report.changed, report.problems.total) == (1, False, 0)
    assert model(engine) == before


def test_check_reports_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    good = check([GivenSource("a", organization(), folder("f"))], clock=lambda: NOW)
    assert (good.problems.total, good.sources[0].verdict) == (0, Verdict.COMPLETE)
    assert (good.counts["organization"], good.counts["folder"], good.counts["user"]) == (1, 1, 0)
    bad = check([GivenSource("a", organization(), folder("f", "gone")), GivenSource("b", FAILED)], clock=lambda: NOW)
    assert bad.counts["folder"] == 1
    assert (bad.problems.counts, bad.sources[1].verdict) == ({"dangling": 1}, Verdict.FAILED)
    assert list(tmp_path.iterdir()) == []
