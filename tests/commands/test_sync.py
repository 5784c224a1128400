"""``usher plan``, ``sync``, ``runs``, ``approve`` and ``discard`` against the self-hosted backend."""

import contextlib
import getpass
import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app.commands import problems
from app.foundation.database.engine import open_engine
from app.sync.apply.applier import Applier
from app.sync.runs.report import report_lines
from tests.commands.conftest import DIRECTORY, Usher

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180), pytest.mark.xdist_group("commands")]


def lines(result: Result) -> list[str]:
    return result.stdout.splitlines()


def test_plan_exit_code_shows_changes(usher_with_backend: Usher, folder: Path) -> None:
    (folder / "usher.db").unlink()  # here it is made by the command itself
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


def test_plan_shows_the_access_impact(usher_with_backend: Usher, folder: Path) -> None:
    assert usher_with_backend("sync").exit_code == 0
    changed = DIRECTORY.replace(", accessType: restricted", "").replace(
        "userId: bob, accessRole: viewer", "userId: bob"
    )
    (folder / "directory.yaml").write_text(changed)
    shown = usher_with_backend("plan", "--impact")
    assert lines(shown)[-8:-2] == [
        "access impact: 2 gained, 2 with another role",
        "acme\tdocument\t2\t0\t1",
        "acme\torganization\t0\t0\t1",
        'acme\tgain editor\tada "Ada [bold]Lovelace[/bold]", bob "Bob"\tdocument roadmap "Roadmap"',
        'acme\tviewer → editor\tbob "Bob"\tdocument handbook "Handbook"',
        'acme\tviewer → editor\tbob "Bob"\torganization acme "Acme"',
    ]
    assert "access impact" not in shown.stderr
    plan = json.loads(usher_with_backend("plan", "--impact", "--json").stdout)
    assert plan["report"]["impact"]["gain"] == 2
    assert plan["accessCounts"][0] == {"organizationId": "acme", "kind": "document", "gain": 2, "lose": 0, "change": 1}
    assert len(plan["accessChanges"]) == 3
    assert plan["accessChanges"][0] == {
        "ordinal": 1,
        "organizationId": "acme",
        "kind": "document",
        "before": None,
        "after": "editor",
        "userCount": 2,
        "resourceCount": 1,
        "userIds": ["ada", "bob"],
        "resourceIds": ["roadmap"],
    }
    plain = usher_with_backend("plan")
    assert "access impact: 2 gained, 2 with another role" in plain.stderr
    assert "gain editor" not in plain.stdout


def test_second_sync_has_nothing_to_do(usher_with_backend: Usher) -> None:
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


def test_sync_applies_a_stored_plan_and_refuses_an_outdated_one(usher_with_backend: Usher, folder: Path) -> None:
    plan_id = json.loads(usher_with_backend("plan", "--json").stdout)["planId"]
    (folder / "directory.yaml").write_text(DIRECTORY.replace("Handbook", "The Handbook"))
    assert usher_with_backend("directory", "refresh").exit_code == 0
    late = usher_with_backend("sync", "--plan", plan_id)
    assert (late.exit_code, late.stdout) == (1, "")
    assert lines(usher_with_backend("runs"))[0].split("\t")[1] == "cancelled", "nothing to attend to"
    assert "Traceback" not in late.stderr
    assert late.stderr.splitlines()[-1].startswith("error: ")
    fresh = json.loads(usher_with_backend("plan", "--json").stdout)["planId"]
    assert usher_with_backend("sync", "--plan", fresh).exit_code == 0
    runs_before = lines(usher_with_backend("runs"))
    unknown = usher_with_backend("sync", "--plan", "no-such-plan")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr == "error: there is no plan no-such-plan of this backend: usher plan makes one\n"
    assert lines(usher_with_backend("runs")) == runs_before


def test_sync_of_a_selection(usher_with_backend: Usher, folder: Path) -> None:
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
def test_unknown_ids_are_one_line(usher_with_backend: Usher, command: str) -> None:
    result = usher_with_backend(command, "--organization", "acmee", "--organization", "acme", "--user", "adda")
    assert result.exit_code == 1, result.output
    assert [line for line in result.stderr.splitlines() if "acmee" in line or "adda" in line] == [
        "error: in neither the directory nor the ledger: organization acmee, user adda"
    ]
    as_json = usher_with_backend(command, "--user", "adda", "--json")
    assert as_json.exit_code == 1
    shown = usher_with_backend("runs", json.loads(as_json.stdout)["runId"])
    assert "in neither the directory nor the ledger: user adda" in lines(shown)
    assert json.loads(as_json.stdout)["report"]["unknown"] == {"organizationIds": [], "userIds": ["adda"], "count": 1}


def test_known_ids_are_synced_beside_unknown_ones(usher_with_backend: Usher) -> None:
    result = usher_with_backend("sync", "--organization", "acmee", "--organization", "acme")
    assert result.exit_code == 1
    assert lines(result)[0].startswith("done: 8 done (")
    assert usher_with_backend("plan").exit_code == 0


def test_removed_users_are_known_while_the_backend_has_them(usher_with_backend: Usher, folder: Path) -> None:
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
def test_invalid_ids_are_usage_errors(usher_in: Usher, command: str, option: str, value: str, complaint: str) -> None:
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
    """A run that holds four deletes of users. The limit is two."""
    (folder / "directory.yaml").write_text(_with_members(12))
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").write_text(_with_members(8))
    held = usher_with_backend("sync")
    assert held.exit_code == 3, held.output
    assert "delete\torganizationUser\tacme / u8\theld" in held.stdout
    summary = [line for line in lines(held) if line.startswith("held: 4 held")]
    assert len(summary) == 1
    return next(line.split()[-1] for line in lines(held) if line.startswith("run "))


def test_approve_applies_held_deletes(usher_with_backend: Usher, held_run: str) -> None:
    approved = usher_with_backend("approve", held_run, "--reason", "they left")
    assert approved.exit_code == 0, approved.output
    assert "4 held deletes were approved" in approved.stdout
    assert usher_with_backend("plan").exit_code == 0
    again = usher_with_backend("approve", held_run)
    assert again.exit_code == 1
    assert again.stderr.startswith("error: only a held run can be approved; this one is done, approved on ")
    user = getpass.getuser()
    assert again.stderr.endswith(f" UTC by {user} (command line) (they left)\n")
    run = json.loads(usher_with_backend("runs", held_run, "--json").stdout)
    assert run["started"] <= run["heldAt"] <= run["decision"]["at"] <= run["resumed"]
    assert re.search(
        rf"held on .* UTC, approved on .* UTC by {user} \(command line\) \(they left\)",
        usher_with_backend("runs", held_run).stdout,
    )


def test_plan_with_only_held_deletes_exits_with_0(usher_with_backend: Usher, held_run: str) -> None:
    plan = usher_with_backend("plan")
    assert (plan.exit_code, lines(plan)[-2]) == (0, "nothing to do; 4 deletes are held"), held_run


def test_plan_with_only_parked_items_exits_with_0(usher_with_backend: Usher, folder: Path) -> None:
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
    assert (parked.exit_code, lines(parked)[-2]) == (0, "nothing to do; 1 item is parked")
    assert usher_with_backend("sync").exit_code == 3


def test_discard_lasts_until_allow_deletes(usher_with_backend: Usher, held_run: str) -> None:
    dropped = usher_with_backend("discard", held_run, "--reason", "on leave")
    assert dropped.exit_code == 0
    assert dropped.stdout.startswith("4 held deletes are discarded; ")
    shown = usher_with_backend("runs", held_run)
    assert shown.stdout.count("\tdiscarded\t") == 4
    assert "cancelled: 4 discarded (0 calls)" in shown.stdout
    assert "error" not in shown.stderr
    again = usher_with_backend("sync")
    assert (again.exit_code, "done: 4 discarded (0 calls)" in again.stdout) == (0, True), again.output
    plan = usher_with_backend("plan")
    assert (plan.exit_code, lines(plan)[-2]) == (0, "nothing to do; 4 deletes were discarded earlier")
    allowed = usher_with_backend("sync", "--allow-deletes")
    assert (allowed.exit_code, "done: 4 done" in allowed.stdout) == (0, True), allowed.output


def test_runs_shows_planned_and_held_items(usher_with_backend: Usher, held_run: str, folder: Path) -> None:
    directory = folder / "directory.yaml"
    directory.write_text(directory.read_text().replace("name: U0", "name: Una"))
    planned = json.loads(usher_with_backend("plan", "--json").stdout)
    shown = usher_with_backend("runs", planned["runId"])
    words = "1 to update; 4 deletes are held"
    assert f"planned only: {words}" in lines(shown), shown.output
    assert f"usher sync --plan {planned['planId']} applies it, until it becomes outdated" in lines(shown)
    assert "nothing to do" not in shown.stdout
    assert words in lines(usher_with_backend("runs"))[0].split("\t")
    assert held_run in usher_with_backend("runs").stdout


def test_runs_shows_one_run_with_its_items(usher_with_backend: Usher, held_run: str) -> None:
    shown = usher_with_backend("runs", held_run)
    assert shown.exit_code == 0
    assert shown.stdout.count("\theld\t") == 4
    assert f"run {held_run}" in shown.stdout
    as_json = json.loads(usher_with_backend("runs", held_run, "--json").stdout)
    assert (as_json["status"], len(as_json["changes"])) == ("held", 4)


def test_plan_and_runs_count_deletes_in_their_grace_period(
    usher_with_backend: Usher, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USHER_DIRECTORY__GRACE", "3600")
    (folder / "directory.yaml").write_text(_with_members(3))
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").write_text(_with_members(2))
    kept = usher_with_backend("plan")
    assert (kept.exit_code, lines(kept)[-2]) == (0, "nothing to do; 1 item waits")
    (folder / "directory.yaml").write_text(_with_members(2).replace("name: U0", "name: Una"))
    both = usher_with_backend("plan")
    assert (both.exit_code, lines(both)[-2]) == (10, "1 to update; 1 item waits")
    assert usher_with_backend("sync").exit_code == 0
    assert lines(usher_with_backend("runs"))[0].split("\t")[5] == "1 done, 1 waiting"


@pytest.mark.parametrize("command", ["runs", "approve", "discard"])
def test_unknown_runs_are_one_line(usher_in: Usher, command: str) -> None:
    result = usher_in(command, "nothing")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: there is no run nothing\n"


def test_sync_with_wrong_credentials_is_one_line(usher_with_backend: Usher, folder: Path) -> None:
    settings = (folder / "usher.yaml").read_text()
    (folder / "usher.yaml").write_text(settings.replace("auth_token: ", "auth_token: x"))
    result = usher_with_backend("sync")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].startswith("error: the backend: ")
    assert "Traceback" not in result.stderr


def test_sync_reports_an_unreadable_directory(usher_with_backend: Usher, folder: Path) -> None:
    (folder / "directory.yaml").unlink()
    result = usher_with_backend("sync")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["plan", "sync"])
def test_incomplete_source_is_reported_once(usher_with_backend: Usher, folder: Path, command: str) -> None:
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").unlink()
    failed = usher_with_backend(command)
    assert failed.exit_code == 3, failed.output
    assert [line for line in failed.stderr.splitlines() if "directory.yaml" in line] == [
        "source directory.yaml could not be read: No such file or directory"
    ]
    (folder / "directory.yaml").write_text(f"{DIRECTORY}folders:\n  - {{organizationId: acme}}\n")
    in_part = usher_with_backend(command)
    assert [line for line in in_part.stderr.splitlines() if line.startswith("source")] == [
        "source directory.yaml was read partially: 1 malformed record"
    ]
    last = lines(usher_with_backend("runs"))[0].split("\t")[0]
    assert "source directory.yaml was read partially: 1 malformed record" in lines(usher_with_backend("runs", last))


def test_retry_reports_the_number_of_items(usher_with_backend: Usher) -> None:
    result = usher_with_backend("sync", "--retry", "--kind", "document", "--organization", "acme")
    assert result.exit_code == 0, result.output
    assert "0 items that wait for the next try and 0 parked items will be tried now" in result.stderr
    assert usher_with_backend("sync", "--kind", "document").exit_code == 2
    single = ("--item", "document", "acme", "", "gone")
    assert "0 parked items will be tried now" in usher_with_backend("sync", "--retry", *single).stderr
    assert usher_with_backend("sync", *single).exit_code == 2


def test_bootstrap_omits_an_existing_section(usher_in: Usher, folder: Path, backend_url: str) -> None:
    (folder / "bare.yaml").write_text(f"backend:\n  base_url: '{backend_url}'\n")
    result = usher_in("backend", "bootstrap", "--email", "one-section@acme.example.com", config="bare.yaml")
    with (folder / "bare.yaml").open("a") as settings:
        settings.write(result.stdout)
    assert list(yaml.safe_load((folder / "bare.yaml").read_text())["backend"]) == ["base_url", "api_key", "auth_token"]


def test_bootstrap_reports_the_backends_error(usher_in: Usher, folder: Path, backend_url: str) -> None:
    (folder / "bare.yaml").write_text(f"backend: {{base_url: '{backend_url}'}}\n")
    result = usher_in("backend", "bootstrap", "--email", "nonsense", config="bare.yaml")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: create_workspace: INVALID_ARGUMENT")


def test_renamed_source_deletes_nothing(usher_with_backend: Usher, folder: Path) -> None:
    assert usher_with_backend("sync").exit_code == 0
    (folder / "other.yaml").write_text("")
    settings = (folder / "usher.yaml").read_text()
    (folder / "usher.yaml").write_text(settings.replace("path: directory.yaml", "path: other.yaml"))
    planned = usher_with_backend("plan", "--json")
    assert json.loads(planned.stdout)["changes"] == []
    assert usher_with_backend("check", "ada", "organization", "acme").exit_code == 0
    usher_with_backend("sync")
    assert usher_with_backend("check", "ada", "organization", "acme").exit_code == 0
    (folder / "other.yaml").write_text(DIRECTORY.replace("  - {organizationId: acme, userId: ada}\n", ""))
    output = usher_with_backend("sync")
    assert output.exit_code == 3
    assert "source directory.yaml: is no longer among directory.sources" in output.stderr
    assert usher_with_backend("directory", "forget", "directory.yaml").exit_code == 0
    plan = json.loads(usher_with_backend("plan", "--json").stdout)
    assert [(change["action"], change["kind"], change["id"]) for change in plan["changes"]] == [
        ("delete", "organizationUser", "ada")
    ]


def test_plan_does_not_change_decisions(usher_with_backend: Usher, folder: Path) -> None:
    assert usher_with_backend("plan").exit_code == 10
    never = usher_with_backend("check", "ada", "organization", "acme")
    assert never.stderr == "error: the directory was never read: run usher directory refresh, or a sync\n"
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").write_text(DIRECTORY.replace("  - {organizationId: acme, userId: ada}\n", ""))
    plan = json.loads(usher_with_backend("plan", "--json").stdout)
    assert [(change["action"], change["id"]) for change in plan["changes"]] == [("delete", "ada")]
    assert usher_with_backend("check", "ada", "organization", "acme").exit_code == 0
    assert usher_with_backend("sync", "--plan", plan["planId"]).exit_code == 0
    assert usher_with_backend("check", "ada", "organization", "acme").exit_code == 4


def test_plan_of_another_file_shows_its_changes(usher_with_backend: Usher, folder: Path) -> None:
    assert usher_with_backend("sync").exit_code == 0
    without_ada = DIRECTORY.replace("  - {organizationId: acme, userId: ada}\n", "")
    (folder / "next.yaml").write_text(without_ada)
    for given in ("next.yaml", "directory.yaml=next.yaml"):
        result = usher_with_backend("plan", "--directory", given, "--json")
        assert result.exit_code == 10, result.stderr
        plan = json.loads(result.stdout)
        assert [(change["action"], change["id"]) for change in plan["changes"]] == [("delete", "ada")]
        assert plan["report"]["whatIf"] == ["next.yaml"]
    assert usher_with_backend("check", "ada", "organization", "acme").exit_code == 0
    assert usher_with_backend("plan").exit_code == 0
    early = usher_with_backend("sync", "--plan", plan["planId"])
    assert early.exit_code == 1
    assert "is out of date, because the directory or the backend has changed" in early.stderr
    (folder / "directory.yaml").write_text(without_ada)
    assert usher_with_backend("sync", "--plan", plan["planId"]).exit_code == 0


def test_plan_replaces_all_sources_or_one(usher_with_backend: Usher, folder: Path) -> None:
    (folder / "more.yaml").write_text("memberships:\n  - {organizationId: acme, userId: cleo}\n")
    settings = (folder / "usher.yaml").read_text()
    one = "- {type: file, path: directory.yaml}"
    (folder / "usher.yaml").write_text(settings.replace(one, f"{one}\n    - {{type: file, path: more.yaml}}"))
    assert usher_with_backend("sync").exit_code == 0
    (folder / "less.yaml").write_text("memberships:\n  - {organizationId: acme, userId: cleo, accessRole: viewer}\n")
    shown = json.loads(usher_with_backend("plan", "--directory", "more.yaml=less.yaml", "--json").stdout)
    assert [(change["action"], change["id"]) for change in shown["changes"]] == [("update", "cleo")]
    shown = json.loads(usher_with_backend("plan", "--directory", "directory.yaml", "--json").stdout)
    # By her own grant she stays on a document; deleting her from the organization takes that away in the backend.
    assert [(change["action"], change["kind"], change["id"]) for change in shown["changes"]] == [
        ("delete", "organizationUser", "cleo"),
        ("add", "documentUser", "cleo"),
    ]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["missing.yaml"], "missing.yaml: No such file or directory"),
        (["a.yaml", "b.yaml"], "--directory a.yaml: write several as NAME=FILE; the sources are: directory.yaml"),
        (["nope=a.yaml"], "--directory nope=a.yaml: no source is called nope; the sources are: directory.yaml"),
        (["directory.yaml="], "--directory directory.yaml=: a file is missing"),
        (["directory.yaml=a", "directory.yaml=b"], "--directory: directory.yaml is given twice"),
        ([""], "--directory : not the path of a file"),
    ],
)
def test_invalid_replacement_is_one_line(usher_with_backend: Usher, given: list[str], message: str) -> None:
    result = usher_with_backend("plan", *[word for one in given for word in ("--directory", one)])
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in result.stderr


NO_SOURCE = "not complete: no source could be read; the last good data stays in force"


@pytest.mark.parametrize("command", ["plan", "sync"])
def test_exit_code_if_no_source_could_be_read(usher_with_backend: Usher, folder: Path, command: str) -> None:
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").unlink()
    result = usher_with_backend(command)
    assert (result.exit_code, lines(result)[-1]) == (3, NO_SOURCE)
    as_json = usher_with_backend(command, "--json")
    assert (as_json.exit_code, as_json.stderr.splitlines()[-1]) == (3, NO_SOURCE)
    assert json.loads(as_json.stdout)["report"]["sources"][0]["verdict"] == "failed"


@pytest.mark.parametrize("command", [("plan",), ("sync",), ("directory", "refresh")], ids=" ".join)
@pytest.mark.parametrize("changed", [False, True])
def test_last_line_names_incomplete_sources(
    usher_with_backend: Usher, folder: Path, command: tuple[str, ...], changed: bool
) -> None:
    """A plan with changes and a failed source exits with 3, too, because it is incomplete."""
    config = folder / "usher.yaml"
    (folder / "cut.jsonl").write_text(
        '{"kind": "user", "userId": "dora", "name": "Dora", "email": "dora@acme.example"}\n'
    )
    (folder / "gone.yaml").write_text("users: [{userId: emil, name: Emil, email: emil@acme.example}]\n")
    (folder / "old.yaml").write_text("users: [{userId: fay, name: Fay, email: fay@acme.example}]\n")
    sources = "".join(f"    - {{type: file, path: {name}}}\n" for name in ("cut.jsonl", "gone.yaml", "old.yaml"))
    whole = config.read_text()
    config.write_text(whole.replace("    - {type: file, path: directory.yaml}\n", sources))
    config.write_text(config.read_text().replace(sources, f"    - {{type: file, path: directory.yaml}}\n{sources}"))
    assert usher_with_backend("sync").exit_code == 0
    assert usher_with_backend(*command).exit_code == 0
    config.write_text(config.read_text().replace("    - {type: file, path: old.yaml}\n", ""))
    (folder / "gone.yaml").unlink()
    (folder / "cut.jsonl").write_text(
        '{"kind": "user", "userId": "dora", "name": "Dora", "email": "dora@acme.example"}\n{"kind": "user"}\n'
    )
    if changed:
        (folder / "directory.yaml").write_text(DIRECTORY.replace("documentName: Handbook", "documentName: Manual"))
    result = usher_with_backend(*command)
    assert (result.exit_code, lines(result)[-1]) == (
        3,
        (
            "not complete: source cut.jsonl was read partially, source gone.yaml could not be read, and source old.yaml"
            " is no longer configured; records that were not read are not removed"
        ),
    ), result.output
    assert usher_with_backend(*command, "--json").exit_code == 3


def test_run_ids_can_be_shortened_or_latest(usher_with_backend: Usher, held_run: str) -> None:
    full = usher_with_backend("runs", held_run)
    for shown in ("latest", held_run[:-3], held_run[:19]):
        assert usher_with_backend("runs", shown).stdout == full.stdout, shown
    many = usher_with_backend("runs", held_run[:4])
    assert (many.exit_code, many.stdout) == (1, "")
    assert many.stderr.startswith(f"error: more than one run begins with {held_run[:4]}, as {held_run} and ")
    approved = usher_with_backend("approve", "latest", "--json")
    assert (approved.exit_code, json.loads(approved.stdout)["runId"]) == (0, held_run)


@pytest.mark.parametrize("command", ["approve", "discard"])
def test_latest_held_run(usher_with_backend: Usher, folder: Path, held_run: str, command: str) -> None:
    assert usher_with_backend("plan").exit_code == 0
    decided = usher_with_backend(command, "latest")
    assert decided.exit_code == 0, decided.output
    assert f"run {held_run}" in decided.stderr.splitlines()
    again = usher_with_backend(command, "latest")
    assert (again.exit_code, again.stderr) == (1, "error: there is no held run yet\n")


def test_latest_plan(usher_with_backend: Usher, folder: Path) -> None:
    assert usher_with_backend("sync").exit_code == 0
    (folder / "directory.yaml").write_text(DIRECTORY.replace("documentName: Handbook", "documentName: Manual"))
    planned = json.loads(usher_with_backend("plan", "--json").stdout)["planId"]
    # A run for a user who needs nothing makes a plan of its own.
    assert usher_with_backend("sync", "--user", "ada").exit_code == 0
    applied = usher_with_backend("sync", "--plan", "latest")
    assert applied.exit_code == 0, applied.output
    assert f"plan {planned}" in applied.stderr.splitlines()


def test_discard_prints_json(usher_with_backend: Usher, held_run: str) -> None:
    dropped = usher_with_backend("discard", held_run[:20], "--json")
    assert (dropped.exit_code, json.loads(dropped.stdout)["runId"]) == (0, held_run)


def test_plan_ids_can_be_shortened(usher_with_backend: Usher) -> None:
    plan_id = lines(usher_with_backend("plan"))[-1].split()[-1]
    assert usher_with_backend("sync", "--plan", "nothing").stderr == (
        "error: there is no plan nothing of this backend: usher plan makes one\n"
    )
    done = usher_with_backend("sync", "--plan", plan_id[:-4])
    assert done.exit_code == 0, done.output


def test_plan_for_unknown_ids_prints_only_an_error(usher_with_backend: Usher) -> None:
    result = usher_with_backend("plan", "--user", "nobody")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].endswith("in neither the directory nor the ledger: user nobody")


def test_held_items_are_shown_with_their_reason(usher_with_backend: Usher, held_run: str) -> None:
    shown = usher_with_backend("runs", held_run).stdout
    assert "no membership of the organization any more" in shown
    holds = [line for line in shown.splitlines() if line.startswith("held back")]
    assert len(holds) == 1
    assert holds[0].startswith("held back in acme: 4 organization members would be deleted, ")


def test_report_of_a_verify_is_readable() -> None:
    found = {
        "seen": 1972,
        "missing": 3,
        "changed": 0,
        "adopted": 1550,
        "undeleted": 0,
        "foreign": {"document": 121, "folder": 2},
        "foreignNamed": [f"document acme / doc-{number}" for number in range(100)],
        "notRead": ["group"],
    }
    output = list(report_lines({"verify": found}))
    assert output[:4] == [
        "verify: 1,972 items in the backend",
        "verify: 3 items are missing in the backend",
        "verify: 1,550 items exist already and were added to the ledger",
        "verify: 123 foreign, left alone (121 document, 2 folder)",
    ]
    assert output[4] == "verify:   document acme / doc-0"
    assert output[-2:] == ["verify:   … and 113 more", "verify: the backend does not return group"]


def test_interrupted_sync_reports_its_progress(
    usher_with_backend: Usher, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "directory.yaml").write_text(_with_members(12))
    wait = Applier._wait_for_answers

    def interrupted(applier: Applier, in_flight: int) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        monkeypatch.undo()
        return wait(applier, in_flight)

    monkeypatch.setattr(Applier, "_wait_for_answers", interrupted)
    result = usher_with_backend("sync")
    assert result.exit_code == 130, result.output
    assert re.fullmatch(
        r"stopped: [0-9]+ done, [0-9]+ left to the next sync; run [0-9TZ]+-[0-9a-f]+", result.stderr.splitlines()[-1]
    )


def test_interrupted_sync_is_continued_before_anything_else(
    usher_with_backend: Usher, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "directory.yaml").write_text(_with_members(12))
    wait = Applier._wait_for_answers

    def interrupted(applier: Applier, in_flight: int) -> object:
        monkeypatch.setattr(Applier, "_wait_for_answers", wait)
        os.kill(os.getpid(), signal.SIGTERM)
        return wait(applier, in_flight)

    # As if the process was killed while it counts.
    monkeypatch.setattr(problems, "count_problems", lambda *_: pytest.fail("a stopped command counts problems"))
    monkeypatch.setattr(Applier, "_wait_for_answers", interrupted)
    result = usher_with_backend("sync")
    assert result.exit_code == 143, result.output
    assert re.search(r"[0-9]+ left to run [0-9TZ]+-[0-9a-f]+, which a worker", result.stderr.splitlines()[-1])


@pytest.mark.parametrize("command", ["sync", "directory refresh"])
def test_command_succeeds_if_problems_cannot_be_counted(
    usher_with_backend: Usher, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def fail(*_: object) -> None:
        raise OperationalError("", {}, sqlite3.OperationalError("database is locked"))

    monkeypatch.setattr(problems, "count_problems", fail)
    result = usher_with_backend(*command.split(), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)
    assert "the problems of the directory were not counted: the database: " in result.stderr


@pytest.mark.extended
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}], ids=str)
def test_ids_are_complete_on_a_narrow_terminal(usher_with_backend: Usher, environment: dict[str, str]) -> None:
    for _ in range(2):
        assert usher_with_backend("plan").exit_code in {0, 10}
    ids = [line.split("\t")[0] for line in lines(usher_with_backend("runs"))]
    main, beside = pty.openpty()
    names = {name: value for name, value in os.environ.items() if not name.startswith(("USHER_", "NO_COLOR"))}
    with subprocess.Popen(
        [sys.executable, "-m", "app", "runs", "--config", "usher.yaml"],
        stdout=beside,
        stderr=subprocess.DEVNULL,
        env=names | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"} | environment,
    ) as process:
        os.close(beside)
        shown = b""
        with contextlib.suppress(OSError):
            while some := os.read(main, 4096):
                shown += some
        assert process.wait(60) == 0
    os.close(main)
    text_shown = shown.decode()
    assert ("\x1b[3" in text_shown) == (not environment), text_shown
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in text_shown.splitlines()]
    assert all(len(row) <= 80 for row in rows)
    found = [row.split()[0] for row in rows if row.startswith("2")]
    assert len(found) == len(set(found)) == len(ids)
    assert all(run_id.startswith(short) for run_id, short in zip(ids, found, strict=True))


def test_backup_can_be_used(usher_with_backend: Usher, folder: Path) -> None:
    assert usher_with_backend("sync").exit_code == 0
    copied = usher_with_backend("db", "backup", "copy.db")
    assert copied.exit_code == 0, copied.output
    assert copied.stdout.startswith("copy.db: ")
    assert (folder / "copy.db").stat().st_mode & 0o777 == 0o600
    again = usher_with_backend("db", "backup", "copy.db")
    assert (again.exit_code, again.stderr) == (
        1,
        "error: copy.db: File exists; name a new file in a folder that can be written to\n",
    )
    before = usher_with_backend("runs").stdout
    for suffix in ("", "-wal", "-shm"):
        (folder / f"usher.db{suffix}").unlink(missing_ok=True)
    (folder / "copy.db").rename(folder / "usher.db")
    assert usher_with_backend("runs").stdout == before
    assert usher_with_backend("plan").exit_code == 0


def test_failed_backup_leaves_no_file(usher_read: Usher, folder: Path) -> None:
    # More than is copied at once: the first part of the copy is there, and a journal of the second.
    with contextlib.closing(sqlite3.connect(folder / "usher.db")) as connection, connection:
        connection.execute("CREATE TABLE filler AS SELECT zeroblob(24000000) AS bytes")
    before = {path.name for path in folder.iterdir()} - {"usher.db-wal", "usher.db-shm"}
    limited = f"ulimit -f 20000; exec {sys.executable} -P -m app db backup copy.db --config usher.yaml"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    result = subprocess.run(
        ["bash", "-c", limited], check=False, capture_output=True, text=True, cwd=folder, env=environment
    )
    assert result.returncode == 1, result.stderr
    assert result.stderr.startswith("error: ")
    assert {path.name for path in folder.iterdir()} - {"usher.db-wal", "usher.db-shm"} == before


def test_backup_of_postgresql_names_pg_dump(usher_in: Usher, folder: Path) -> None:
    (folder / "usher.yaml").write_text("database_url: postgresql+psycopg://me@127.0.0.1:1/nothing\n")
    result = usher_in("db", "backup", "copy.db")
    assert result.exit_code == 1
    assert "pg_dump" in result.stderr
    assert not (folder / "copy.db").exists()


def test_config_and_upgrade_print_json(usher_in: Usher) -> None:
    shown = json.loads(usher_in("config", "show", "--json").stdout)
    assert shown["database_url"] == {"value": "sqlite:///usher.db", "from": "usher.yaml:1"}
    assert shown["server.port"] == {"value": 8080, "from": "default"}
    assert json.loads(usher_in("db", "upgrade", "--json").stdout) == {"upgraded": True, "olderVersionsGoOn": None}
    assert json.loads(usher_in("db", "upgrade", "--json").stdout) == {"upgraded": False, "olderVersionsGoOn": True}
