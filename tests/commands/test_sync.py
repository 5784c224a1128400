"""Plans, syncs and approvals against the self-hosted backend, by their exit codes and what they print."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy import text

from app.database.engine import open_engine
from tests.commands.conftest import DIRECTORY, Usher

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.xdist_group("commands")]


def lines(result: Result) -> list[str]:
    return result.stdout.splitlines()


def test_plan_tells_changes_by_its_exit_code_and_changes_nothing(usher_with_backend: Usher) -> None:
    first = usher_with_backend("plan")
    assert first.exit_code == 10, first.output
    assert "add\torganization\tacme\tplanned" in first.stdout
    assert lines(first)[-2] == "6 to add, 2 to update"
    again = usher_with_backend("plan", "--json")
    assert again.exit_code == 10
    plan = json.loads(again.stdout)
    assert (plan["dryRun"], plan["calls"]) == (True, 0)
    assert len(plan["changes"]) == 8
    assert {change["status"] for change in plan["changes"]} == {"planned"}


def test_sync_brings_the_backend_in_step_and_then_has_nothing_to_do(usher_with_backend: Usher) -> None:
    first = usher_with_backend("sync")
    assert first.exit_code == 0, first.output
    assert lines(first)[0].startswith("done: 8 done (")
    assert usher_with_backend("plan").exit_code == 0
    second = usher_with_backend("sync", "--json")
    assert second.exit_code == 0
    assert json.loads(second.stdout)["calls"] == 0
    assert usher_with_backend("sync", "--verify").exit_code == 0
    listed = usher_with_backend("runs")
    assert len(lines(listed)) == 4
    assert lines(listed)[0].split("\t")[1:3] == ["done", "command"]


def test_sync_applies_a_stored_plan_and_refuses_it_when_the_world_moved_on(
    usher_with_backend: Usher, folder: Path
) -> None:
    plan_id = json.loads(usher_with_backend("plan", "--json").stdout)["planId"]
    (folder / "directory.yaml").write_text(DIRECTORY.replace("Handbook", "The Handbook"))
    assert usher_with_backend("directory", "refresh").exit_code == 0
    late = usher_with_backend("sync", "--plan", plan_id)
    assert (late.exit_code, late.stdout) == (1, "")
    assert "Traceback" not in late.stderr
    assert late.stderr.splitlines()[-1].startswith("error: ")
    fresh = json.loads(usher_with_backend("plan", "--json").stdout)["planId"]
    assert usher_with_backend("sync", "--plan", fresh).exit_code == 0
    runs_before = lines(usher_with_backend("runs"))
    unknown = usher_with_backend("sync", "--plan", "no-such-plan")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr == "error: there is no plan no-such-plan of this backend: usher plan makes one\n"
    assert lines(usher_with_backend("runs")) == runs_before


def test_sync_can_be_narrowed(usher_with_backend: Usher, folder: Path) -> None:
    early = usher_with_backend("plan", "--user", "ada", "--json")
    assert early.exit_code == 0, "the organization is not there yet, and a run for users does not bring it"
    assert [(one["id"], one["status"]) for one in json.loads(early.stdout)["changes"]] == [("ada", "skipped")]
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").write_text(
        DIRECTORY.replace("name: Bob", "name: Robert").replace("name: Cleo", "name: C")
    )
    result = usher_with_backend("plan", "--user", "bob", "--json")
    assert result.exit_code == 10, result.output
    assert [(one["kind"], one["id"]) for one in json.loads(result.stdout)["changes"]] == [("organizationUser", "bob")]


@pytest.mark.parametrize("command", ["plan", "sync"])
def test_unknown_ids_end_the_command_in_one_line(usher_with_backend: Usher, command: str) -> None:
    result = usher_with_backend(command, "--organization", "acmee", "--organization", "acme", "--user", "adda")
    assert result.exit_code == 1, result.output
    assert [line for line in result.stderr.splitlines() if "acmee" in line or "adda" in line] == [
        "error: neither the directory nor what was synced so far knows organization acmee, user adda"
    ]
    as_json = usher_with_backend(command, "--user", "adda", "--json")
    assert as_json.exit_code == 1
    shown = usher_with_backend("runs", json.loads(as_json.stdout)["runId"])
    assert "neither the directory nor what was synced so far knows user adda" in lines(shown)
    assert json.loads(as_json.stdout)["report"]["unknown"] == {"organizationIds": [], "userIds": ["adda"], "count": 1}


def test_known_ids_are_synced_beside_unknown_ones(usher_with_backend: Usher) -> None:
    result = usher_with_backend("sync", "--organization", "acmee", "--organization", "acme")
    assert result.exit_code == 1
    assert lines(result)[0].startswith("done: 8 done (")
    assert usher_with_backend("plan").exit_code == 0


def test_who_is_gone_from_the_directory_is_known_as_long_as_the_backend_has_him(
    usher_with_backend: Usher, folder: Path
) -> None:
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").write_text(_with_members(0))
    gone = usher_with_backend("sync", "--user", "ada")
    assert gone.exit_code == 0, gone.output
    assert lines(gone)[0].startswith("done: 1 done (")
    assert usher_with_backend("sync", "--user", "ada").exit_code == 1


@pytest.mark.parametrize("command", ["plan", "sync"])
@pytest.mark.parametrize("option", ["--organization", "--user"])
@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("", "'': must not be empty"),
        ("\udcff", "'·': must be valid Unicode text"),
        ("x" * 600, "must be at most 512 characters long"),
    ],
)
def test_ids_that_no_record_can_have_are_usage_errors(
    usher_in: Usher, command: str, option: str, value: str, complaint: str
) -> None:
    result = usher_in(command, option, value)
    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def _with_members(count: int) -> str:
    users = "".join(f"  - {{userId: u{n}, name: U{n}, email: u{n}@acme.example}}\n" for n in range(12))
    members = "".join(f"  - {{organizationId: acme, userId: u{n}}}\n" for n in range(count))
    acme = "organizations:\n  - {organizationId: acme, organizationName: Acme}\n"
    return f"{acme}users:\n{users}memberships:\n{members}"


@pytest.fixture
def held_run(usher_with_backend: Usher, folder: Path) -> str:
    """A run that holds back the removal of four users, with a limit of two."""
    (folder / "directory.yaml").write_text(_with_members(12))
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").write_text(_with_members(8))
    held = usher_with_backend("sync")
    assert held.exit_code == 3, held.output
    assert "delete\torganizationUser\tacme / u8\theld" in held.stdout
    summary = [line for line in lines(held) if line.startswith("held: 4 held")]
    assert len(summary) == 1
    return next(line.split()[-1] for line in lines(held) if line.startswith("run "))


def test_approve_lets_held_deletes_go(usher_with_backend: Usher, held_run: str) -> None:
    approved = usher_with_backend("approve", held_run)
    assert approved.exit_code == 0, approved.output
    assert "4 held deletes were approved" in approved.stdout
    assert usher_with_backend("plan").exit_code == 0
    again = usher_with_backend("approve", held_run)
    assert again.exit_code == 1
    assert again.stderr == "error: only a held run can be approved; this one is done\n"


def test_plan_of_held_deletes_alone_is_no_change(usher_with_backend: Usher, held_run: str) -> None:
    plan = usher_with_backend("plan")
    assert (plan.exit_code, lines(plan)[-2]) == (0, "nothing to do now; 4 held back by the limits"), held_run


def test_plan_of_parked_items_alone_is_no_change(usher_with_backend: Usher, folder: Path) -> None:
    (folder / "directory.yaml").write_text(_with_members(2))
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").write_text(_with_members(3))
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    planned = json.loads(usher_with_backend("plan", "--json").stdout)
    with engine.begin() as connection:
        connection.execute(
            text(
                """
                INSERT INTO item_failure (ledger_id, kind, organization_id, container_id, item_id, deleting,
                  fingerprint, failures, retry_at, parked, message)
                SELECT 1, kind, organization_id, container_id, item_id, FALSE,
                  digest || '|' || access_type || '|' || access_role || '|0|' || parent_id, 10, 0, TRUE, 'refused'
                FROM plan_item WHERE plan_id = :plan_id
                """
            ),
            {"plan_id": planned["planId"]},
        )
    engine.dispose()
    parked = usher_with_backend("plan")
    assert (parked.exit_code, lines(parked)[-2]) == (0, "nothing to do now; 1 parked")
    assert usher_with_backend("sync").exit_code == 3


def test_discard_drops_them_and_the_next_run_holds_them_again(usher_with_backend: Usher, held_run: str) -> None:
    dropped = usher_with_backend("discard", held_run)
    assert (dropped.exit_code, dropped.stdout) == (0, f"the 4 held deletes of run {held_run} are dropped\n")
    assert usher_with_backend("sync").exit_code == 3
    assert usher_with_backend("sync", "--allow-deletes").exit_code == 0


def test_runs_shows_one_run_with_its_items(usher_with_backend: Usher, held_run: str) -> None:
    shown = usher_with_backend("runs", held_run)
    assert shown.exit_code == 0
    assert shown.stdout.count("\theld\t") == 4
    assert f"run {held_run}" in shown.stdout
    as_json = json.loads(usher_with_backend("runs", held_run, "--json").stdout)
    assert (as_json["status"], len(as_json["changes"])) == ("held", 4)


def test_plan_and_runs_say_how_many_deletes_wait_for_the_grace_period(
    usher_with_backend: Usher, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USHER_DIRECTORY__GRACE", "3600")
    (folder / "directory.yaml").write_text(_with_members(3))
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").write_text(_with_members(2))
    kept = usher_with_backend("plan")
    assert (kept.exit_code, lines(kept)[-2]) == (0, "nothing to do now; 1 waiting")
    (folder / "directory.yaml").write_text(_with_members(2).replace("name: U0", "name: Una"))
    both = usher_with_backend("plan")
    assert (both.exit_code, lines(both)[-2]) == (10, "1 to update; 1 waiting")
    assert usher_with_backend("sync").exit_code == 0
    assert lines(usher_with_backend("runs"))[0].split("\t")[5] == "1 done, 1 waiting"


@pytest.mark.parametrize("command", ["runs", "approve", "discard"])
def test_unknown_runs_are_one_line(usher_in: Usher, command: str) -> None:
    result = usher_in(command, "nothing")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: there is no run nothing\n"


def test_sync_with_wrong_credentials_ends_in_one_error(usher_with_backend: Usher, folder: Path) -> None:
    settings = (folder / "usher.yaml").read_text()
    (folder / "usher.yaml").write_text(settings.replace("auth_token: ", "auth_token: x"))
    result = usher_with_backend("sync")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].startswith("error: the backend: ")
    assert "Traceback" not in result.stderr


def test_sync_says_when_the_directory_cannot_be_read(usher_with_backend: Usher, folder: Path) -> None:
    (folder / "directory.yaml").unlink()
    result = usher_with_backend("sync")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["plan", "sync"])
def test_source_that_is_not_read_well_is_told_once(usher_with_backend: Usher, folder: Path, command: str) -> None:
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").unlink()
    failed = usher_with_backend(command)
    assert failed.exit_code == 0, failed.output
    assert [line for line in failed.stderr.splitlines() if "directory.yaml" in line] == [
        "source directory.yaml could not be read: No such file or directory"
    ]
    (folder / "directory.yaml").write_text(f"{DIRECTORY}folders:\n  - {{organizationId: acme}}\n")
    in_part = usher_with_backend(command)
    assert [line for line in in_part.stderr.splitlines() if line.startswith("source")] == [
        "source directory.yaml was read in part: 1 malformed record(s)"
    ]
    last = lines(usher_with_backend("runs"))[0].split("\t")[0]
    assert "source directory.yaml was read in part: 1 malformed record(s)" in lines(usher_with_backend("runs", last))


def test_retry_parked_says_how_many(usher_with_backend: Usher) -> None:
    result = usher_with_backend("sync", "--retry-parked")
    assert result.exit_code == 0
    assert "0 parked items will be tried again" in result.stderr


def test_bootstrap_says_what_the_backend_objects_to(usher_in: Usher, folder: Path, backend_url: str) -> None:
    (folder / "bare.yaml").write_text(f"backend: {{base_url: '{backend_url}'}}\n")
    result = usher_in("backend", "bootstrap", "--email", "nonsense", config="bare.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: create_workspace: INVALID_ARGUMENT")
