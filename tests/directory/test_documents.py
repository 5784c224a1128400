"""Directories in JSON and YAML documents: records, their places, and unusable documents."""

from pathlib import Path
from time import process_time

import orjson
import pytest
import yaml

from app.access.records import AccessType, Folder, User
from app.directory import documents
from app.directory.documents import MAX_DOCUMENT_BYTES
from app.directory.source import End, Found, Malformed, Remark, Verdict
from tests.worlds.files import file_source

DEMO = Path(__file__).parents[2] / "config" / "demo" / "directory.yaml"


@pytest.mark.parametrize("name", ["d.yaml", "d.yml", "d.json"])
def test_documents_are_read_with_their_places(read_file, name: str) -> None:
    """A JSON document is read without its lines; this YAML has one alone."""
    document = {
        "users": [{"userId": "ada", "name": "Ada", "email": ""}, "nobody", {"userId": ""}],
        "folders": [
            {
                "kind": "folder",
                "organizationId": "o",
                "folderId": "f",
                "folderName": "F",
                "accessType": "restricted",
                "x": 1,
            },
            {"kind": "user", "userId": "ada", "name": "Ada", "email": ""},
        ],
        "groups": None,
    }
    steps = read_file(name, orjson.dumps(document))
    line = "" if name.endswith(".json") else "file:1"
    assert steps == [
        Found(User(user_id="ada", name="Ada", email=""), (line or "file:users[0]")),
        Malformed((line or "file:users[1]"), "not an object, but text"),
        Malformed((line or "file:users[2]"), "userId: is empty"),
        Found(
            Folder(
                organization_id="o",
                folder_id="f",
                folder_name="F",
                access_type=AccessType.RESTRICTED,
                extra_fields={"x": 1},
            ),
            (line or "file:folders[0]"),
        ),
        Malformed((line or "file:folders[1]"), "kind: 'user' is in a list of folders"),
        End(Verdict.PARTIAL, "3 malformed records"),
    ]


def test_a_place_in_yaml_is_the_line_on_which_a_record_begins(read_file) -> None:
    steps = read_file(
        "d.yaml",
        """\
# People
users:
  - userId: ada
    name: Ada
    email: ""

  - nobody
  - {userId: grace, name: Grace, email: ""}
memberships: [{organizationId: o,
    userId: ada}, {organizationId: o, userId: grace}]
""",
    )
    places = [step.place for step in steps if not isinstance(step, End)]
    assert places == ["file:3", "file:7", "file:8", "file:9", "file:10"]


@pytest.mark.parametrize(
    ("name", "content"), [("d.yaml", ""), ("d.yaml", "# nothing"), ("d.json", ""), ("d.json", "{}")]
)
def test_an_empty_document_is_complete(read_file, name: str, content: str) -> None:
    assert read_file(name, content) == [End(Verdict.COMPLETE)]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("d.json", "[]", "must be an object with the lists"),
        ("d.json", '{"users": [}', "line 1: not JSON"),
        ("d.json", '{"users": {}}', "users: must be a list"),
        ("d.json", '{"users": [], "users": []}', "users: this key occurs twice"),
        ("d.json", '{"people": []}', "'people' is not one of the lists"),
        ("d.json", "[" * 100_000, "nested too deep"),
        ("d.json", '{"users": [' + "9" * 5000 + "]}", "not JSON that can be used"),
        ("d.json", b'{"users": ["\xff"]}', "not UTF-8"),
        ("d.yaml", "users: [", "not YAML"),
        ("d.yaml", "users: []\nusers: []", "users: this key occurs twice"),
        ("d.yaml", "users\n", "must be an object"),
        ("d.yaml", "users: []\n---\nusers: []", "not YAML"),
        ("d.yaml", "? [a]\n: 1", "a key is not text"),
        ("d.yaml", "a: " + "[" * 50_000, "nested more than 100 deep"),
        ("d.yaml", "users: &a [*a]", "line 1: *a refers to another value; write the value here"),
        ("d.yaml", "memberships:\n- &m {userId: a}\n- {<<: *m}", "line 3: *m refers to another value"),
        ("d.yaml", "users: [{<<: {userId: a}}]", "line 1: not YAML: could not determine a constructor"),
        ("d.yaml", "x-notes: []", "'x-notes' is not one of the lists"),
        ("d.yaml", 'users: !!python/object/apply:os.system ["true"]', "could not determine a constructor"),
        ("d.yaml", b"users: ['\xff']", "not UTF-8"),
        ("d.yaml", b"users: ['\x07']", "not YAML"),
    ],
)
def test_reads_of_broken_documents_fail(read_file, name: str, content: str | bytes, reason: str) -> None:
    (end,) = read_file(name, content)
    assert end.verdict is Verdict.FAILED
    assert reason in end.reason
    assert "\n" not in end.reason


def test_a_document_with_too_many_values_fails(read_file, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_VALUES", 100)
    (end,) = read_file("d.yaml", f"users: [{'a, ' * 99}]")
    assert end.verdict is Verdict.FAILED
    assert "has more than 100 values" in end.reason


def test_a_document_that_is_too_large_is_failed(read_file) -> None:
    (end,) = read_file("d.yaml", b"#" * (MAX_DOCUMENT_BYTES + 1))
    assert end.verdict is Verdict.FAILED
    assert "write it as JSON Lines" in end.reason


def test_yaml_scalars_that_are_no_text_are_malformed_with_a_hint(read_file) -> None:
    steps = read_file("d.yaml", "users: [{userId: 7, name: A, email: ''}, {userId: no, name: A, email: ''}]")
    assert [step.reason for step in steps if isinstance(step, Malformed)] == [
        "userId: must be text, but is a number; put it in quotes",
        "userId: must be text, but is true or false; put it in quotes",
    ]


def test_yaml_times_need_a_zone_like_everywhere(read_file) -> None:
    steps = read_file(
        "d.yaml",
        """
        memberships:
          - {organizationId: o, userId: a, expiresAt: 2030-01-01T00:00:00Z}
          - {organizationId: o, userId: b, expiresAt: 2030-01-01 00:00:00}
        """,
    )
    assert [type(step) for step in steps] == [Found, Malformed, End]
    assert "has no time zone" in steps[1].reason


def test_an_equals_sign_in_yaml_is_text(read_file) -> None:
    found, _ = read_file("d.yaml", "users: [{userId: =, name: A, email: ''}]")
    assert found.record.user_id == "="


def test_yaml_key_twice_in_a_record_is_malformed(read_file) -> None:
    steps = read_file("d.yaml", "users: [{userId: a, userId: b, name: A, email: ''}]")
    assert steps[0] == Malformed("file:1", "userId: this key occurs twice in one object")


def test_yaml_values_that_json_lacks_are_malformed(read_file) -> None:
    steps = read_file(
        "d.yaml", "users: [{userId: a, name: A, email: '', x: !!set {b}}, {userId: a, name: A, email: '', y: .inf}]"
    )
    assert [step.reason for step in steps if isinstance(step, Malformed)] == [
        "x: set cannot be sent as JSON",
        "y: is not a finite number",
    ]


def test_the_demo_directory_is_complete_without_remarks() -> None:
    steps = list(file_source(DEMO).read())
    assert steps[-1] == End(Verdict.COMPLETE)
    assert [step for step in steps if isinstance(step, Malformed | Remark)] == []
    document = yaml.safe_load(DEMO.read_text("utf-8"))
    assert sum(map(len, document.values())) == len(steps) - 1


@pytest.mark.extended
@pytest.mark.slow
def test_a_mapping_with_many_keys_takes_linear_time(read_file) -> None:
    """40,000 keys took half a minute when each was looked up among those before it."""
    fields = "\n".join(f"    x{number}: {number}" for number in range(40_000))
    began = process_time()
    found = read_file("d.yaml", f"users:\n  - userId: ada\n    name: Ada\n    email: ''\n{fields}\n")[0]
    assert isinstance(found, Found)
    assert process_time() - began < 15
    repeated = read_file("d.yaml", f"users:\n  - userId: ada\n{fields}\n    x7: 1\n")
    assert "x7" in repeated[0].reason
