"""A faulty read never deletes items that a complete read would keep."""

import gzip
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from app.directory.bounded import BoundedSource
from app.directory.source import EVERYTHING, End, Reading, ReadRequest, Verdict
from app.sync.plan.settings import LimitSettings
from app.sync.runs.directory_reads import ReadOptions, read_directory
from app.sync.runs.lifecycle import Runs
from app.sync.runs.lock import sync_lock
from app.sync.runs.run import RunRequest
from tests.progress import QuietProgress
from tests.sources.conftest import FileWorld, People, ended, run_of
from tests.worlds.files import file_source

Lie = Callable[[People], None]


def is_gone(people: People) -> None:
    people.file.unlink()


def is_a_folder(people: People) -> None:
    people.file.unlink()
    people.file.mkdir()


def is_cut_off_in_a_line(people: People) -> None:
    text = people.text()
    people.write(text[: len(text) // 2])


def is_empty(people: People) -> None:
    people.write("")


def is_blank(people: People) -> None:
    people.write("\n" * 40)


def is_not_utf8(people: People) -> None:
    people.file.write_bytes(people.text().encode()[:2000] + b"\xff\xfe\n")


def is_zeros(people: People) -> None:
    people.file.write_bytes(b"\0" * 4096)


def is_a_web_page(people: People) -> None:
    people.write("<!doctype html>\n<html><body>502 Bad Gateway</body></html>\n")


def has_one_malformed_line_and_a_tenth(people: People) -> None:
    lines = people.text().splitlines(keepends=True)
    people.write("".join(lines[:12]) + '{"kind": "user"}\n')


@pytest.mark.extended
@pytest.mark.parametrize(
    "lie",
    [
        is_gone,
        is_a_folder,
        is_cut_off_in_a_line,
        is_empty,
        is_blank,
        is_not_utf8,
        is_zeros,
        is_a_web_page,
        has_one_malformed_line_and_a_tenth,
    ],
    ids=lambda lie: str(lie.__name__),
)
def test_faulty_source_removes_no_user(world: FileWorld, people: People, lie: Lie) -> None:
    before = world.members()
    lie(people)
    run = run_of(world, allow_deletes=True)
    assert run.status == "done"
    assert run.calls == 0
    [source] = run.report["sources"]
    assert source["verdict"] in {"failed", "partial"}
    assert world.members() == before
    assert world.may("u39")
    assert not world.may("guest-1")
    if people.file.is_dir():
        people.file.rmdir()
    # The truth ends it, deletes included.
    people.users.remove("u39")
    people.write()
    assert ended(world) == "done"
    assert world.members() == before - {"u39"}
    assert not world.may("u39")


def test_source_that_is_cut_between_two_lines_is_held_by_the_limits(world: FileWorld, people: People) -> None:
    """Such a file does not show that it is cut: only the limits protect the backend."""
    lines = people.text().splitlines(keepends=True)
    people.write("".join(lines[:62]))  # all users, and half of the memberships
    run = run_of(world)
    assert run.status == "held"
    assert run.report["held"] == [
        {
            "kind": "organizationUser",
            "organizationId": "acme",
            "deletes": 20,
            "below": 0,
            "ledger": 40,
            "limit": "delete_percent",
            "allowed": 20,
            "reason": "20 of 40 organization members would be deleted, over sync.limits.delete_percent (20 %): "
            "approve the deletes, or keep the items in the backend",
        }
    ]
    assert len(world.members()) == 41


def test_truncated_archive_removes_no_user(world: FileWorld, people: People, tmp_path: Path) -> None:
    archive = tmp_path / "people.jsonl.gz"
    world.configure(archive)
    packed = gzip.compress(people.text().encode())
    archive.write_bytes(packed)
    assert ended(world) == "done"
    before = world.members()
    for length in (0, 1, 10, len(packed) // 2, len(packed) - 1):
        archive.write_bytes(packed[:length])
        assert run_of(world, allow_deletes=True).calls == 0
    assert world.members() == before


def test_source_that_hangs_is_failed_and_others_go_on(world: FileWorld, people: People) -> None:
    let_go = threading.Event()

    class Hanging:
        name = "hr"

        def read(self, request: ReadRequest = EVERYTHING) -> Reading:
            yield from ()
            # Meanwhile nobody else has to wait: the database is written to, and questions are answered.
            Runs(world.engine, world.time, Random(9)).enqueue(RunRequest(trigger="resync", dry_run=True))
            answered.append(world.may("u00"))
            let_go.wait(60)
            yield End(Verdict.COMPLETE)

    answered: list[bool] = []
    world.sources = [*world.sources, BoundedSource(Hanging(), timeout=1)]
    people.users.append("u40")
    people.write()
    try:
        run = run_of(world)
    finally:
        let_go.set()
    assert run.status == "done"
    assert "u40" in world.members()
    assert answered == [True]
    assert [source["name"] for source in run.report["sources"]] == ["hr"]


def test_run_that_is_stopped_while_it_reads_is_cancelled_and_no_failure(world: FileWorld, people: People) -> None:
    let_go = threading.Event()

    class Hanging:
        name = "people"

        def read(self, request: ReadRequest = EVERYTHING) -> Reading:
            yield from ()
            let_go.wait(60)
            yield End(Verdict.COMPLETE)

    before = world.members()
    world.sources = [BoundedSource(Hanging(), timeout=60, stop=world.stop)]
    threading.Timer(0.2, world.stop.set).start()
    try:
        run = run_of(world)
    finally:
        let_go.set()
        world.stop.clear()
    assert run.status == "cancelled"
    assert run.error == "stopped while the directory was read: the process was asked to end"
    world.configure(people.file)
    assert world.metric("usher_directory_source_up", source="people") == 1
    assert world.metric("usher_attention", cause="source") == 0
    assert ended(world) == "done"
    assert world.members() == before


def test_empty_source_is_used_once_it_is_accepted(world: FileWorld, people: People) -> None:
    people.write("")
    read_directory(world.engine, world.sources, ReadOptions(accept_empty=["people"]), clock=world.time)
    assert not world.may("u01")
    run = run_of(world)
    assert run.status == "held"
    assert len(world.members()) == 41


def accept_shrink(world: FileWorld) -> None:
    """An operator accepts that the source has fewer records."""
    read_directory(world.engine, world.sources, ReadOptions(accept_shrink=["people"]), clock=world.time)


def test_tenth_of_a_directory_takes_nothing_until_it_is_accepted_and_holds_the_deletes(
    world: FileWorld, people: People
) -> None:
    everybody = list(people.users)
    people.users = everybody[:4]
    people.write()
    assert ended(world) == "done"
    assert world.may("u39")
    assert world.metric("usher_attention", cause="shrunk") == 1
    assert world.metric("usher_directory_source_refused", source="people") == 1
    accept_shrink(world)
    run = run_of(world)
    assert run.status == "held"
    assert run.total("held") == 36
    assert run.calls == 0
    assert world.metric("usher_attention", cause="shrunk") == 0
    assert (world.may("u00"), world.may("u39")) == (True, False)
    assert world.metric("usher_held_deletes") == 36
    assert world.metric("usher_attention", cause="held") == 1
    # The same again is the same, not twice as much.
    assert ended(world) == "held"
    assert world.metric("usher_held_deletes") == 36
    people.users = everybody
    people.write()
    assert ended(world) == "done"
    assert world.metric("usher_held_deletes") == 0
    assert world.metric("usher_attention", cause="held") == 0
    assert world.may("u39")
    assert len(world.members()) == 41


def test_approval_applies_what_is_still_due_and_nothing_else(world: FileWorld, people: People) -> None:
    everybody = list(people.users)
    people.users = everybody[:20]
    people.write()
    held = run_of(world)
    assert held.total("held") == 20
    # Ten of them come back, and ten others leave, which are not part of the held plan.
    people.users = everybody[5:30]
    people.write()
    world.runs.approve(held.run_id)
    lock = sync_lock(world.engine)
    assert lock.acquire()
    try:
        run = world.sync_engine().execute(held.run_id, lock=lock, progress=QuietProgress(), stop=world.stop)
    finally:
        lock.release()
    assert run.status == "done"
    assert run.counts["organizationUser"]["delete"]["done"] == 10
    assert world.members() == {*everybody[:30], "guest-1"}
    # Five of forty that are left, as an ordinary run sees it, are within the limits.
    assert ended(world) == "done"
    assert world.members() == {*everybody[5:30], "guest-1"}


def test_grace_keeps_what_went_for_so_long_in_the_backend_alone(world: FileWorld, people: People) -> None:
    world.configure(people.file, grace=3600)
    people.users.remove("u39")
    people.write()
    run = run_of(world)
    assert (run.status, run.total("waiting"), run.calls) == ("done", 1, 0)
    assert not world.may("u39")
    for _ in range(3):
        assert ended(world) == "done"
        assert "u39" in world.members()
    world.time.move_on(minutes=30)
    assert ended(world) == "done"
    assert "u39" not in world.members()


def test_grace_restarts_for_users_that_came_back(world: FileWorld, people: People) -> None:
    world.configure(people.file, grace=3600)
    everybody = list(people.users)
    for _ in range(3):
        people.users = everybody[:-1]
        people.write()
        assert run_of(world).total("waiting") == 1
        world.time.move_on(minutes=30)
        people.users = list(everybody)
        people.write()
        assert ended(world) == "done"
    assert "u39" in world.members()


def test_ids_in_another_case_are_others_and_held(world: FileWorld, people: People) -> None:
    people.users = [user.upper() for user in people.users]
    people.write()
    assert ended(world) == "done"
    assert (world.may("u39"), world.may("U39")) == (True, True)
    accept_shrink(world)
    run = run_of(world)
    assert run.status == "held"
    assert run.counts["organizationUser"]["delete"]["held"] == 40
    assert (world.may("u39"), world.may("U39")) == (False, True)
    people.users = [user.lower() for user in people.users]
    people.write()
    accept_shrink(world)
    # Forty came and forty go again: they are ours, but that many nobody deletes unasked.
    assert ended(world) == "held"
    assert (world.may("u39"), world.may("U39")) == (True, False)
    assert ended(world, allow_deletes=True) == "done"
    assert world.members() == {*people.users, "guest-1"}


def test_duplicates_cycles_and_dangling_references_take_nothing_away(world: FileWorld, people: People) -> None:
    before = world.members()
    group = {"kind": "group", "organizationId": "acme", "groupName": "G"}
    member = {"kind": "groupMember", "organizationId": "acme"}
    folder = {"kind": "folder", "organizationId": "acme", "folderName": "F"}
    people.more = [
        *({"kind": "user", "userId": user, "name": user, "email": f"{user}@acme.example"} for user in people.users),
        {"kind": "membership", "organizationId": "acme", "userId": "nobody"},
        {"kind": "membership", "organizationId": "nowhere", "userId": "u00"},
        {"kind": "grant", "organizationId": "acme", "documentId": "gone", "userId": "u00"},
        *({**group, "organizationUserGroupId": name} for name in ("a", "b")),
        {**member, "organizationUserGroupId": "a", "memberGroupId": "b"},
        {**member, "organizationUserGroupId": "b", "memberGroupId": "a"},
        {**member, "organizationUserGroupId": "b", "userId": "u07"},
        {**folder, "folderId": "f", "parentFolderId": "g"},
        {**folder, "folderId": "g", "parentFolderId": "f"},
        {"kind": "document", "organizationId": "acme", "documentId": "lost", "documentName": "L", "folderId": "f"},
    ]
    people.write()
    run = run_of(world)
    assert run.status == "done"
    assert not any("delete" in actions for actions in run.counts.values())
    counts = run.report["problemCounts"]
    assert isinstance(counts, dict)
    assert counts["duplicate"] == 40
    assert (counts["groupCycle"], counts["folderCycle"], counts["dangling"]) == (1, 2, 4)
    assert world.members() == before
    assert world.held()["members"] == {("acme", "a", "u07"), ("acme", "b", "u07")}
    assert not world.held()["folders"]
    assert not world.may("u00", "lost")


def test_folder_that_falls_into_a_cycle_is_not_deleted_beyond_the_limits(world: FileWorld, people: People) -> None:
    """What is left out as wrong is gone from the directory like anything else; a cycle above many is held."""
    folder = {"kind": "folder", "organizationId": "acme", "folderName": "F"}
    document = {"kind": "document", "organizationId": "acme", "documentName": "D", "folderId": "low"}
    people.more = [
        {**folder, "folderId": "top"},
        {**folder, "folderId": "low", "parentFolderId": "top"},
        *({**document, "documentId": f"d{number}"} for number in range(60)),
    ]
    people.write()
    assert ended(world) == "done"
    people.more = [{**folder, "folderId": "top", "parentFolderId": "low"}, *people.more[1:]]
    people.write()
    run = run_of(world)
    assert run.status == "held"
    assert len(world.held()["documents"]) == 61
    holds = {(hold["kind"], hold["deletes"], hold["below"], hold["ledger"]) for hold in run.report["held"]}
    assert holds == {("document", 60, 0, 61), ("folder", 2, 60, 2)}


def test_failed_second_source_keeps_its_records(world: FileWorld, people: People, tmp_path: Path) -> None:
    others = People(tmp_path / "others.jsonl", [f"v{number:02}" for number in range(20)])
    others.write()
    world.configure(people.file, others.file, limits=LimitSettings(delete_count=1000, delete_percent=100))
    assert ended(world) == "done"
    before = world.members()
    assert len(before) == 61
    others.file.unlink()
    people.users.remove("u39")
    people.write()
    assert ended(world) == "done"
    assert world.members() == before - {"u39"}
    assert world.may("v19")


def test_source_that_moves_to_another_name_and_fails_takes_nobody_away(
    world: FileWorld, people: People, tmp_path: Path
) -> None:
    before = world.members()
    world.configure(tmp_path / "renamed.jsonl")
    assert run_of(world, allow_deletes=True).calls == 0
    assert world.members() == before
    assert world.may("u39")


def test_source_that_grows_while_it_is_read_is_failed(world: FileWorld, people: People) -> None:
    [inner] = world.sources

    class Growing:
        name = inner.name

        def read(self, request: ReadRequest = EVERYTHING) -> Reading:
            for number, step in enumerate(file_source(people.file, name="people").read()):
                if number == 5:
                    with people.file.open("a") as file:
                        file.write("\n")
                yield step

    world.sources = [BoundedSource(Growing(), timeout=30)]
    run = run_of(world, allow_deletes=True)
    [source] = run.report["sources"]
    assert source["verdict"] == "failed"
    assert run.calls == 0


def test_readiness_and_metrics_contain_the_age_of_the_directory(world: FileWorld, people: People) -> None:
    world.configure(people.file, max_age=7200)
    assert ended(world) == "done"
    world.time.move_on(minutes=5)
    assert world.readiness() == (200, {"state": "ok", "detail": "read successfully 300 s ago"})
    assert world.metric("usher_directory_age_seconds") == 300
    people.file.unlink()
    for _ in range(4):
        assert ended(world) == "done"
    code, check = world.readiness()
    assert (code, check["state"]) == (200, "ok")
    assert check["detail"] == "read successfully 3900 s ago; 1 of 1 sources failed since"
    world.time.move_on(hours=1)
    code, check = world.readiness()
    assert (code, check["state"]) == (503, "failed")
    assert check["detail"].endswith("directory.max_age allows 7200 s")
    assert world.metric("usher_directory_age_seconds") == 7500
    # A load balancer acts on the readiness; requests that arrive nevertheless are answered.
    assert world.may("u39")
    people.write()
    assert ended(world) == "done"
    assert world.readiness()[0] == 200


def test_age_is_that_of_the_source_that_was_read_longest_ago(world: FileWorld, people: People, tmp_path: Path) -> None:
    others = People(tmp_path / "others.jsonl", ["v00"])
    others.write()
    world.configure(people.file, others.file)
    assert ended(world) == "done"
    others.file.unlink()
    assert ended(world) == "done"
    assert world.metric("usher_directory_age_seconds") == 900
    # Of a source that is configured no more nothing is expected.
    world.configure(people.file)
    assert ended(world) == "done"
    assert world.metric("usher_directory_age_seconds") == 0
