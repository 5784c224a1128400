"""``usher directory`` and ``usher check``."""

import gzip
import json
from pathlib import Path

import pytest
from sqlalchemy import delete

from app.access.tables import ACCESS_TABLES
from app.directory.bounded import BoundedSource, Policy
from app.directory.mapping.source import MappedSource
from app.directory.pushes import PushedSource
from app.foundation.database.engine import open_engine, writing
from tests.commands.conftest import DIRECTORY, Usher
from tests.worlds.files import file_source
from tests.worlds.object_directory import ObjectDirectory, rules_of, thing

pytestmark = pytest.mark.slow


@pytest.fixture
def changing_sources(monkeypatch: pytest.MonkeyPatch) -> list[ObjectDirectory]:
    """Replaces the sources by two that report changes, one with pushes, and the file."""
    directories = [ObjectDirectory(), ObjectDirectory()]
    rules = rules_of("[{from: users, user: {userId: it.id, name: it.id, email: it.id}}]")
    for name, directory in zip("ab", directories, strict=True):
        directory.put(thing("users", name, {"id": name}))
    made = [
        BoundedSource(MappedSource("ad", directories[0], rules), timeout=30),
        BoundedSource(MappedSource("hr", directories[1], rules), timeout=30),
        BoundedSource(PushedSource("app"), timeout=30, policy=Policy(only_pushed=True)),
        BoundedSource(file_source(Path("directory.yaml"), name="directory.yaml"), timeout=30),
    ]
    monkeypatch.setattr("app.commands.bootstrap.outgoing.sources_from_settings", lambda *_, **__: made)
    return directories


def test_check_exits_with_0_without_problems(usher_in: Usher, folder: Path) -> None:
    result = usher_in("directory", "check")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "directory.yaml\tcomplete\t10\t0\t"
    assert not (folder / "usher.db").exists()


def test_check_reports_problems_with_their_location(usher_in: Usher, folder: Path) -> None:
    (folder / "directory.yaml").write_text(DIRECTORY + "folders:\n  - {organizationId: acme, folderId: 7}\n")
    result = usher_in("directory", "check")
    assert result.exit_code == 1
    assert "malformed: directory.yaml" in result.stderr
    assert "Traceback" not in result.stderr


def test_check_reports_a_missing_file(usher_in: Usher, folder: Path) -> None:
    (folder / "directory.yaml").unlink()
    result = usher_in("directory", "check")
    assert result.exit_code == 1
    assert result.stdout.startswith("directory.yaml\tfailed\t0\t0\t")


def test_refresh_changes_decisions(usher_in: Usher, folder: Path) -> None:
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


def test_refresh_keeps_records_of_a_broken_source(usher_read: Usher, folder: Path) -> None:
    (folder / "directory.yaml").write_text("users: [")
    result = usher_read("directory", "refresh")
    assert result.exit_code == 3
    assert result.stdout.startswith("directory.yaml\tfailed\t")
    assert usher_read("check", "ada", "document", "handbook", "--organization", "acme").exit_code == 0


def test_refresh_requires_accept_empty(usher_read: Usher, folder: Path) -> None:
    (folder / "directory.yaml").write_text("users: []\n")
    assert usher_read("directory", "refresh").exit_code == 3
    wrong = usher_read("directory", "refresh", "--accept-empty", "other")
    assert (wrong.exit_code, wrong.stderr.splitlines()[-1]) == (
        1,
        "error: no source is called 'other'; there are: directory.yaml",
    )
    assert usher_read("directory", "refresh", "--accept-empty", "directory.yaml").exit_code == 0
    assert usher_read("check", "ada", "organization", "acme").exit_code == 4


def test_check_shows_records_in_force(usher_read: Usher) -> None:
    assert usher_read("directory", "refresh").exit_code == 0
    output = usher_read("directory", "check").stderr
    assert "source directory.yaml: 10 records in force, last read " in output
    assert " (everything, complete, " in output
    [kept] = json.loads(usher_read("directory", "check", "--json").stdout)["inForce"]
    assert (kept["name"], kept["records"], kept["verdict"], kept["answered"]) == (
        "directory.yaml",
        10,
        "complete",
        "everything",
    )
    assert (kept["tellsChanges"], kept["refused"], kept["lastRefusal"]) == (False, "", "")
    assert kept["readAsAWholeAt"] == kept["readWellAt"]


def test_refresh_requires_accept_shrink(usher_read: Usher, folder: Path) -> None:
    (folder / "usher.yaml").write_text(
        (folder / "usher.yaml").read_text().replace("directory:", "directory:\n  guard: {count: 0, percent: 10}", 1)
    )
    (folder / "directory.yaml").write_text(DIRECTORY.replace("  - {organizationId: acme, userId: ada}\n", ""))
    refused = "would take away 1 of 2 membership records, more than 0 and more than 10 %"
    checked = usher_read("directory", "check")
    assert (checked.exit_code, "would take away at least 1 of 2 membership records" in checked.stderr) == (1, True)
    assert "usher directory refresh --accept-shrink directory.yaml" in checked.stderr
    result = usher_read("directory", "refresh")
    assert (result.exit_code, refused in result.stdout) == (3, True)
    assert usher_read("check", "ada", "organization", "acme").exit_code == 0
    assert usher_read("directory", "refresh", "--accept-shrink", "directory.yaml").exit_code == 0
    assert usher_read("check", "ada", "organization", "acme").exit_code == 4


def moved(folder: Path, content: str) -> None:
    """Renames the only source by changing its path."""
    (folder / "other.yaml").write_text(content)
    (folder / "usher.yaml").write_text((folder / "usher.yaml").read_text().replace("directory.yaml", "other.yaml"))


def test_empty_replacement_of_the_only_source_denies_nobody(usher_read: Usher, folder: Path) -> None:
    moved(folder, "")
    checked = usher_read("directory", "check")
    assert checked.exit_code == 1
    first = "source other.yaml: is read for the first time and is empty, while 10 records of other sources are in force"
    assert first in checked.stderr
    assert "source directory.yaml: is no longer among directory.sources" in checked.stderr
    refreshed = usher_read("directory", "refresh")
    assert refreshed.exit_code == 3
    assert "usher directory forget directory.yaml removes them" in refreshed.stderr
    assert refreshed.stdout.splitlines()[-2:] == [
        "revision 1: nothing changed",
        (
            "not complete: no source could be read and source directory.yaml is no longer configured;"
            " records that were not read are not removed"
        ),
    ]
    assert usher_read("check", "ada", "organization", "acme").exit_code == 0


def test_forget_removes_records(usher_read: Usher, folder: Path) -> None:
    moved(folder, DIRECTORY.replace("  - {organizationId: acme, userId: ada}\n", ""))
    configured = usher_read("directory", "forget", "other.yaml")
    assert (configured.exit_code, configured.stderr) == (
        1,
        "error: the source 'other.yaml' is configured: take it out of directory.sources first\n",
    )
    refreshed = usher_read("directory", "refresh")
    assert (refreshed.exit_code, refreshed.stdout.splitlines()[-1]) == (
        3,
        "not complete: source directory.yaml is no longer configured; records that were not read are not removed",
    )
    assert usher_read("check", "ada", "organization", "acme").exit_code == 0
    assert usher_read("directory", "check").exit_code == 1
    gone = usher_read("directory", "forget", "directory.yaml")
    removed = "1 organization, 3 users, 2 documents, 2 memberships, 1 grant, 1 context grant"
    assert (gone.exit_code, gone.stdout) == (
        0,
        f"removed {removed} of directory.yaml, except what other sources contain\nrevision 2: membership +0 ~0 -1\n",
    )
    assert usher_read("check", "ada", "organization", "acme").exit_code == 4
    assert usher_read("directory", "check").exit_code == 0
    again = usher_read("directory", "forget", "directory.yaml")
    assert (again.exit_code, again.stderr.splitlines()[0]) == (
        1,
        "error: nothing is in force of a source called 'directory.yaml'; no longer configured: none",
    )


def test_check_warns_of_an_empty_directory(usher_in: Usher, folder: Path) -> None:
    (folder / "directory.yaml").write_text("")
    result = usher_in("directory", "check")
    assert result.exit_code == 1
    assert "source directory.yaml: is empty: nobody gets access; check that its export is complete" in result.stderr
    assert not (folder / "usher.db").exists()


def test_export_leaves_out_records_without_effect(usher_read: Usher, folder: Path) -> None:
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    with writing(engine) as connection:
        connection.execute(delete(ACCESS_TABLES["user"]))
    engine.dispose()
    assert usher_read("directory", "export", "out.jsonl").exit_code == 0
    kinds = {json.loads(line).get("kind") for line in Path("out.jsonl").read_bytes().splitlines()}
    assert "organization" in kinds
    assert kinds.isdisjoint({"user", "membership", "groupMember", "grant", "contextGrant"})


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.JSONL.GZ"])
def test_export_can_be_read_back(usher_read: Usher, folder: Path, name: str) -> None:
    assert usher_read("directory", "export", name).exit_code == 0
    raw = Path(name).read_bytes()
    lines = (gzip.decompress(raw) if name.lower().endswith(".gz") else raw).splitlines()
    *records, end = map(json.loads, lines)
    assert len([record["kind"] for record in records]) == 10
    assert end == {"end": True, "records": 10}
    (folder / "usher.yaml").write_text((folder / "usher.yaml").read_text().replace("directory.yaml", name))
    (folder / "usher.db").unlink()
    assert usher_read("directory", "check").exit_code == 0
    assert not list(folder.glob("*.part"))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("no/such/folder.jsonl", "No such file or directory"),
        ("no/such/folder.jsonl.gz", "No such file or directory"),
        ("directory.yaml/in-a-file.jsonl", "Not a directory"),
        ("x" * 300 + ".jsonl", "File name too long"),
    ],
)
def test_export_to_a_missing_folder_is_one_line(usher_read: Usher, name: str, problem: str) -> None:
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


def test_check_explains_in_text_and_json(usher_read: Usher) -> None:
    plain = usher_read("check", "ada", "document", "handbook", "--organization", "acme", "--explain")
    assert "document: organizationId acme, documentId handbook" in plain.stdout
    answer = json.loads(
        usher_read("check", "ada", "document", "handbook", "--organization", "acme", "--explain", "--json").stdout
    )
    assert (answer["hasAccess"], answer["accessRole"], answer["resourceId"]) == (True, "editor", "handbook")
    assert [record["kind"] for record in answer["path"]] == ["document", "organization", "membership"]
    origins = [one for record in answer["path"] for one in record["origins"]]
    assert [(one["source"], Path(one["place"]).name, one["rule"]) for one in origins] == [
        ("directory.yaml", f"directory.yaml:{place}", None) for place in (11, 2, 8)
    ]
    assert [line for line in plain.stdout.splitlines() if line.endswith("directory.yaml:11")]


@pytest.mark.parametrize(
    ("full", "answered"),
    [
        ([], ["changes", "changes", "everything"]),
        (["--full"], ["everything", "everything", "everything"]),
        (["--full", "ad"], ["everything", "changes", "everything"]),
        (["--full=hr", "--full", "directory.yaml"], ["changes", "everything", "everything"]),
    ],
    ids=lambda value: " ".join(value) or "none",
)
def test_full_reads_sources_completely(
    usher_read: Usher, changing_sources: list[ObjectDirectory], full: list[str], answered: list[str]
) -> None:
    assert usher_read("directory", "refresh").exit_code == 0
    result = usher_read("directory", "refresh", *full, "--json")
    assert (result.exit_code, [one["answered"] for one in json.loads(result.stdout)["sources"]]) == (0, answered)
    # The app's is not read at all.
    process = [[request.since != "" for _, request in source.asked[2:]] for source in changing_sources]
    assert process == [[False, True] if how == "everything" else [True] for how in answered[:2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--full", "nowhere"], "no source is called 'nowhere'; there are: ad, hr, app, directory.yaml"),
        (["--full", "ad", "--full", "HR"], "no source is called 'HR'; there are: ad, hr, app, directory.yaml"),
        (["--full", "app"], "source app is not read: what was pushed to it stays in force"),
        (
            ["--accept-empty", "app"],
            "source app only receives pushes, so there is no read to accept",
        ),
        (
            ["--full", "ad", "--accept-shrink", "app"],
            "source app only receives pushes, so there is no read to accept",
        ),
        (["--full", "x" * 100_000], f"no source is called '{'x' * 59}…; there are: ad, hr, app, directory.yaml"),
        (["--full", "\udc80\n"], r"no source is called '\udc80\n'; there are: ad, hr, app, directory.yaml"),
        (["--accept-shrink", "\x1b[1m"], r"no source is called '\x1b[1m'; there are: ad, hr, app, directory.yaml"),
        (["--accept-empty", ""], "no source is called ''; there are: ad, hr, app, directory.yaml"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_full_of_an_unreadable_source_is_one_line(
    usher_read: Usher, changing_sources: list[ObjectDirectory], arguments: list[str], message: str
) -> None:
    result = usher_read("directory", "refresh", *arguments)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, f"error: {message}")
    assert not [source.asked for source in changing_sources if source.asked]


def test_explain_shows_the_fields_of_each_row(usher_in: Usher, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = ObjectDirectory()
    groups.put(
        thing("rows", "1", {"until": "2031-01-01T00:00:00Z", "role": "viewer"}),
        thing("rows", "2", {"until": "2030-01-01T00:00:00Z", "role": "editor"}),
    )
    rules = rules_of(
        """
        - {from: rows, when: it.role == "viewer", organization: {organizationId: '"o"', organizationName: '"O"'}}
        - {from: rows, when: it.role == "viewer", user: {userId: '"u"', name: '"U"', email: '""'}}
        - {from: rows, membership: {organizationId: '"o"', userId: '"u"', accessRole: it.role, expiresAt: it.until}}
        """
    )
    made = [BoundedSource(MappedSource("hr", groups, rules), timeout=30)]
    monkeypatch.setattr("app.commands.bootstrap.outgoing.sources_from_settings", lambda *_, **__: made)
    assert usher_in("directory", "refresh").exit_code == 0
    output = usher_in("check", "u", "organization", "o", "--explain").stdout.splitlines()
    assert [line.strip() for line in output[-3:]] == [
        "1. membership: organizationId o, userId u, accessRole editor, expiresAt 2031-01-01T00:00:00.000Z",
        "hr: rows rows/1, id 1, rule 3 provides expiresAt",
        "hr: rows rows/2, id 2, rule 3 provides accessRole",
    ]


def test_check_prints_iso_times(usher_read: Usher) -> None:
    process = ["check", "cleo", "document", "roadmap", "--organization", "acme", "--at", "2030-01-01T11:59:00Z"]
    answer = json.loads(usher_read(*process, "--explain", "--json").stdout)
    ends = "2030-01-01T12:00:00.000Z"
    assert answer["expiresAt"] == ends
    assert [record["expiresAt"] for record in answer["path"] if "expiresAt" in record] == [ends]
    assert f"expiresAt {ends}" in usher_read(*process, "--explain").stdout


def test_check_escapes_control_characters(usher_read: Usher) -> None:
    result = usher_read("check", "\x1b[31mada\u202e", "document", "handbook", "--organization", "acme")
    assert result.exit_code == 4
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output


def broken(folder: Path) -> None:
    many = "".join(f"  - {{organizationId: acme, userId: u{number}, expiresAt: soon}}\n" for number in range(345))
    text = DIRECTORY.replace("grants:\n", "  - {organizationId: acme, documentId: x, documentNam: X}\ngrants:\n", 1)
    (folder / "directory.yaml").write_text(text.replace("memberships:\n", f"memberships:\n{many}"))


def test_frequent_problem_does_not_hide_another(usher_in: Usher, folder: Path) -> None:
    broken(folder)
    result = usher_in("directory", "check")
    assert result.exit_code == 1
    output = result.stderr.splitlines()
    assert len(output) < 6
    assert (
        "malformed, 345 times: expiresAt: 'soon' is not an ISO 8601 time (at directory.yaml:8,"
        " directory.yaml:9, directory.yaml:10 and 342 more)"
    ) in output
    assert (
        "malformed: directory.yaml:358: 'documentNam': is not a field of a document; did you mean documentName?"
    ) in output
    fewer = usher_in("directory", "check", "--limit", "1").stderr.splitlines()
    assert fewer[-1] == "… and 1 other problems"


@pytest.mark.parametrize("command", ["check", "refresh"])
def test_check_and_refresh_print_json(usher_in: Usher, folder: Path, command: str) -> None:
    broken(folder)
    result = usher_in("directory", command, "--json")
    report = json.loads(result.stdout)
    assert report["problemCounts"] == {"malformed": 346}
    assert [group["count"] for group in report["problemGroups"]] == [345, 1]
    assert report["sources"][0]["verdict"] == "partial"
    assert report.get("suspicions", []) == []


def test_check_warns_of_suspicious_records(usher_in: Usher, folder: Path) -> None:
    (folder / "directory.yaml").write_text(
        DIRECTORY.replace(
            "users:\n",
            "users:\n"
            "  - {userId: Ada, name: Ada, email: ADA@acme.example}\n"
            "  - {userId: 'dan ', name: Dan, email: not an address}\n",
        ).replace("documentName: Handbook", f"documentName: {'x' * 10_001}")
    )
    result = usher_in("directory", "check")
    assert result.exit_code == 0
    output = result.stderr.splitlines()
    limit = "a backend takes at most 10,000 and refuses more"
    for remark in (
        "remark: directory.yaml:5: the id 'dan ' begins or ends with a blank",
        "remark: directory.yaml:5: email: 'not an address' is not an e-mail address",
        f"remark: directory.yaml:13: documentName: has 10,001 characters; {limit}",
        "remark: directory.yaml:6: the user ids 'Ada' and 'ada' differ only in case: they are two users",
        "remark: directory.yaml:6: email: 'ada@acme.example' belongs to the users 'Ada', 'ada'",
    ):
        assert remark in output, output


def test_export_requires_force_and_a_known_suffix(usher_read: Usher, folder: Path) -> None:
    wrong = usher_read("directory", "export", "out.csv")
    assert (wrong.exit_code, wrong.stderr) == (
        1,
        "error: out.csv: the format is JSON Lines; the name must end in .jsonl or .ndjson, with or without .gz\n",
    )
    (folder / "out.jsonl").write_text("mine")
    kept = usher_read("directory", "export", "out.jsonl")
    assert (kept.exit_code, kept.stderr) == (1, "error: out.jsonl: already exists; --force replaces it\n")
    assert (folder / "out.jsonl").read_text() == "mine"
    assert usher_read("directory", "export", "out.jsonl", "--force").exit_code == 0
    assert len((folder / "out.jsonl").read_text().splitlines()) == 11


def test_source_path_that_is_a_folder(usher_in: Usher, folder: Path) -> None:
    (folder / "directory.yaml").unlink()
    (folder / "directory.yaml").mkdir()
    result = usher_in("directory", "check")
    assert result.stdout.splitlines()[0].endswith("is a folder; name the file in it")


BY_ADDRESS = """\
users:
  - {userId: u5, name: Ann, email: "", aliases: [Ann@acme.example, E1001]}
  - {userId: u6, name: Bob, email: "", aliases: [E1002]}
fills:
  - {userAlias: ann@acme.example, disabled: true}
  - {userAlias: e1002, disabled: true}
"""


def test_check_warns_of_addresses_as_aliases(usher_in: Usher, folder: Path) -> None:
    (folder / "directory.yaml").write_text(BY_ADDRESS)
    result = usher_in("directory", "check")
    assert result.exit_code == 0
    assert [line for line in result.stderr.splitlines() if line.startswith("remark")] == [
        (
            "remark: directory.yaml:2: aliases: 1 are addresses, such as 'ann@acme.example'; "
            "users who can change their own address get what is granted to another, "
            "so only administrators may be able to write that attribute"
        ),
        (
            "remark: directory.yaml:5: userAlias: 1 records that disable a user name the user by an address, such as "
            "'ann@acme.example'; use a lasting id such as employeeID"
        ),
    ]
    (folder / "directory.yaml").write_text(BY_ADDRESS.replace("nn@acme.example", "E1003"))
    assert "remark" not in usher_in("directory", "check").stderr
