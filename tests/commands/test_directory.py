"""Reading the directory, and deciding by it."""

import gzip
import json
from pathlib import Path

import pytest

from tests.commands.conftest import DIRECTORY, Usher


def test_check_of_a_good_directory_ends_with_0(usher_in: Usher, folder: Path) -> None:
    result = usher_in("directory", "check")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "directory.yaml\tcomplete\t10\t0\t"
    assert not (folder / "usher.db").exists()


def test_check_reports_what_is_wrong_with_its_place(usher_in: Usher, folder: Path) -> None:
    (folder / "directory.yaml").write_text(DIRECTORY + "folders:\n  - {organizationId: acme, folderId: 7}\n")
    result = usher_in("directory", "check")
    assert result.exit_code == 1
    assert "malformed: directory.yaml" in result.stderr
    assert "Traceback" not in result.stderr


def test_check_of_a_missing_file_says_so(usher_in: Usher, folder: Path) -> None:
    (folder / "directory.yaml").unlink()
    result = usher_in("directory", "check")
    assert result.exit_code == 1
    assert result.stdout.startswith("directory.yaml\tfailed\t0\t0\t")


def test_refresh_makes_decisions_follow(usher_in: Usher, folder: Path) -> None:
    early = usher_in("check", "ada", "document", "handbook", "--organization", "acme")
    assert early.exit_code == 1
    assert early.stderr == "error: the directory was never read: run usher directory refresh, or a sync\n"
    first = usher_in("directory", "refresh")
    assert first.exit_code == 0
    assert first.stdout.splitlines()[-1].startswith("revision 1: organization +1 ~0 -0; user +3 ~0 -0")
    assert usher_in("directory", "refresh").stdout.splitlines()[-1] == "revision 1: nothing changed"
    assert usher_in("check", "ada", "document", "handbook", "--organization", "acme").exit_code == 0
    (folder / "directory.yaml").write_text(DIRECTORY.replace("  - {organizationId: acme, userId: ada}\n", ""))
    assert usher_in("directory", "refresh").exit_code == 0
    assert usher_in("check", "ada", "document", "handbook", "--organization", "acme").exit_code == 4


def test_refresh_keeps_what_a_broken_source_last_said(usher_read: Usher, folder: Path) -> None:
    (folder / "directory.yaml").write_text("users: [")
    result = usher_read("directory", "refresh")
    assert result.exit_code == 1
    assert result.stdout.startswith("directory.yaml\tfailed\t")
    assert usher_read("check", "ada", "document", "handbook", "--organization", "acme").exit_code == 0


def test_refresh_takes_an_empty_source_only_on_someones_word(usher_read: Usher, folder: Path) -> None:
    (folder / "directory.yaml").write_text("users: []\n")
    assert usher_read("directory", "refresh").exit_code == 1
    wrong = usher_read("directory", "refresh", "--accept-empty", "other")
    assert (wrong.exit_code, wrong.stderr.splitlines()[-1]) == (
        1,
        "error: no source is called 'other'; there are: directory.yaml",
    )
    assert usher_read("directory", "refresh", "--accept-empty", "directory.yaml").exit_code == 0
    assert usher_read("check", "ada", "organization", "acme").exit_code == 4


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_export_is_read_back_as_it_was(usher_read: Usher, folder: Path, name: str) -> None:
    assert usher_read("directory", "export", name).exit_code == 0
    raw = Path(name).read_bytes()
    lines = (gzip.decompress(raw) if name.endswith(".gz") else raw).splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert len(kinds) == 10
    (folder / "usher.yaml").write_text((folder / "usher.yaml").read_text().replace("directory.yaml", name))
    assert usher_read("directory", "check").exit_code == 0
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no/such/folder.jsonl", "No such file or directory"),
        ("no/such/folder.jsonl.gz", "No such file or directory"),
        ("directory.yaml/in-a-file.jsonl", "Not a directory"),
        ("x" * 300, "File name too long"),
    ],
)
def test_export_into_nowhere_is_one_line_that_names_what_was_given(usher_read: Usher, name: str, problem: str) -> None:
    result = usher_read("directory", "export", name)
    assert result.exit_code == 1
    assert result.stderr == f"error: {name}: {problem}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "begins"),
    [
        (["ada", "organization", "acme"], 0, "Allowed as editor"),
        (["bob", "document", "handbook", "--organization", "acme"], 0, "Allowed as viewer"),
        (["bob", "document", "roadmap", "--organization", "acme"], 4, "Denied"),
        (["cleo", "document", "roadmap", "--organization", "acme", "--at", "2029-12-31T12:00:00Z"], 0, "Allowed"),
        (["cleo", "document", "roadmap", "--organization", "acme", "--at", "2030-01-01T13:00:00+01:00"], 4, "Denied"),
        (["cleo", "document", "roadmap", "--organization", "acme", "--at", "1893499200001"], 4, "Denied"),
        (["bob", "context", "handbook", "--organization", "acme", "--context", "widgetId=2"], 0, "Allowed as viewer"),
        (["bob", "context", "handbook", "--organization", "acme", "--context", "widgetId=3"], 4, "Denied"),
        (["bob", "context", "handbook", "--organization", "acme"], 4, "Denied"),
        (["nobody", "document", "handbook", "--organization", "acme"], 4, "Denied"),
        (["ada", "document", 'it\'s "odd" 🙂/x', "--organization", "acme"], 4, "Denied"),
    ],
)
def test_check_decides(usher_read: Usher, arguments: list[str], code: int, begins: str) -> None:
    result = usher_read("check", *arguments)
    assert result.exit_code == code, result.output
    assert result.stdout.splitlines()[0] == ("allowed" if code == 0 else "denied")
    assert result.stdout.splitlines()[1].startswith(begins)


def test_check_refuses_a_field_named_twice(usher_read: Usher) -> None:
    twice = ["--context", "widgetId=3", "--context", "widgetId=2"]
    result = usher_read("check", "bob", "context", "handbook", "--organization", "acme", *twice)
    assert result.exit_code == 2
    assert "--context names a field twice" in result.stderr


def test_check_explains_and_speaks_json(usher_read: Usher) -> None:
    plain = usher_read("check", "ada", "document", "handbook", "--organization", "acme", "--explain")
    assert "document: organizationId acme, documentId handbook" in plain.stdout
    answer = json.loads(
        usher_read("check", "ada", "document", "handbook", "--organization", "acme", "--explain", "--json").stdout
    )
    assert (answer["hasAccess"], answer["accessRole"], answer["resourceId"]) == (True, "editor", "handbook")
    assert [record["kind"] for record in answer["path"]] == ["document", "organization", "membership"]


def test_check_shows_no_control_characters(usher_read: Usher) -> None:
    result = usher_read("check", "\x1b[31mada\u202e", "document", "handbook", "--organization", "acme")
    assert result.exit_code == 4
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output
