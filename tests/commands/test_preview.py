"""``usher directory preview``."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from app.directory.bounded import BoundedSource
from app.directory.mapping.source import MappedSource
from tests.commands.conftest import Usher
from tests.worlds.object_directory import ObjectDirectory, rules_of, thing

RULES = """
- {from: users, user: {userId: it.id, name: it.name, email: it.mail}}
- {from: groups, organization: {organizationId: it.cn, organizationName: it.cn}}
- {from: groups, each: members, membership: {organizationId: it.cn, userId: member.userId}}
"""


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> ObjectDirectory:
    """Replaces the configured sources by a directory with rules."""
    directory = ObjectDirectory()
    directory.put(
        *(thing("users", f"u{n}", {"id": f"u{n}", "name": f"U {n}", "mail": f"u{n}@x.example"}) for n in range(60)),
        thing("groups", "acme", {"cn": "acme"}, tuple(f"users/u{n}" for n in range(60))),
    )

    def sources(*_: object, **__: object) -> list[BoundedSource]:
        return [BoundedSource(MappedSource("ad", directory, rules_of(RULES)), timeout=30)]

    monkeypatch.setattr("app.commands.bootstrap.outgoing.sources_from_settings", sources)
    return directory


def lines(result: Result) -> list[list[str]]:
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_preview_shows_records_of_a_file(usher_in: Usher) -> None:
    result = usher_in("directory", "preview", "directory.yaml", "--id", "BOB@acme.example")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "directory.yaml, directory.yaml:5",
        "  record   user         userId bob, name Bob, email bob@acme.example",
        "",
    ]
    whole = usher_in("directory", "preview", "directory.yaml")
    assert ["user", "3"] in lines(whole)
    assert "compared with the records in force: there are none yet" in whole.stdout


def test_preview_shows_changes_without_making_them(usher_in: Usher, folder: Path) -> None:
    usher_in("directory", "refresh")
    text = (folder / "directory.yaml").read_text()
    (folder / "directory.yaml").write_text(
        text.replace("Bob", "Robert").replace("documentId: handbook", "documentId: h2")
    )
    for _ in range(2):
        output = usher_in("directory", "preview", "directory.yaml").stdout
        assert (
            "compared with the records in force: user +0 ~1 -0; document +1 ~0 -1; guard: passes, would remove 1 of 2"
            " document records; a read is refused above 20 records and 20 percent"
        ) in output
    checked = usher_in("directory", "check")
    assert "guard: no kind has fewer records than are in force" in checked.stderr.splitlines()
    (folder / "directory.yaml").write_text(text.replace("  - {organizationId: acme, userId: ada}\n", ""))
    message = "1 of 2 membership records; a read is refused above 20 records and 20 percent"
    assert (
        f"source directory.yaml would take away at least {message}"
        in usher_in("directory", "check").stderr.splitlines()
    )
    output = json.loads(usher_in("directory", "preview", "directory.yaml", "--json").stdout)
    assert (output["losses"], output["guard"]) == (
        [{"kind": "membership", "gone": 1, "kept": 2}],
        {"count": 20, "percent": 20},
    )
    assert f"source directory.yaml takes away {message}" in usher_in("directory", "refresh").stderr.splitlines()
    assert "guard: nothing is taken away" in usher_in("directory", "refresh").stderr.splitlines()


def test_preview_shows_and_counts_records_of_rules(usher_in: Usher, directory: ObjectDirectory) -> None:
    result = usher_in("directory", "preview", "ad", "--set", "users", "--limit", "1")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:5] == [
        "ad, users: users/u0",
        "  id       u0",
        "  it       id u0, mail u0@x.example, name U 0",
        "  rule 1   user         userId u0, name U 0, email u0@x.example",
        "  rule 3   membership   organizationId acme, userId u0, accessRole editor   through groups/acme",
    ]
    assert ["1 users: user", "60", "60", "0", "0", "60"] in lines(result)
    assert ["3 groups, each member: membership", "1", "1", "0", "0", "60"] in lines(result)


def test_fields_may_come_from_different_groups(
    usher_in: Usher, directory: ObjectDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    further = "userId: member.userId, accessRole: it.role, expiresAt: it.until}"
    rules = RULES.replace("userId: member.userId}", further)
    directory.put(
        thing("groups", "acme", {"cn": "acme", "role": "viewer"}, ("users/u0", "users/u1")),
        thing("groups", "sub", {"cn": "acme", "role": "editor", "until": "2030-01-01T00:00:00Z"}, ("users/u0",)),
        thing("groups", "all", {"cn": "acme", "role": "editor"}, ("users/u1",)),
    )

    def groups_of(user: str) -> list[str]:
        text = usher_in("directory", "preview", "ad", "--id", user).stdout
        return [line.partition("through ")[2] for line in text.splitlines() if "membership" in line]

    monkeypatch.setattr("tests.commands.test_preview.RULES", rules)
    assert groups_of("u0") == ["groups/acme   (provides expiresAt)", "groups/sub   (provides accessRole)"]
    assert groups_of("u1") == ["groups/acme", "groups/all   (wins)"]
    output = json.loads(usher_in("directory", "preview", "ad", "--id", "u1", "--json").stdout)["objects"][0]["rules"]
    assert [(one["wins"], one["gives"]) for one in output[1:]] == [
        (False, ["expiresAt"]),
        (True, ["accessRole", "expiresAt"]),
    ]


def test_preview_reports_a_refusal_of_the_guard(usher_in: Usher, directory: ObjectDirectory) -> None:
    assert usher_in("directory", "refresh").exit_code == 0
    for number in range(25):
        directory.remove("users", f"u{number}")
    result = usher_in("directory", "preview", "ad")
    assert result.exit_code == 1
    assert "refused: would take away 25 of 60 user records" in result.stdout
    assert "usher directory refresh --accept-shrink ad" in result.stdout
    output = json.loads(usher_in("directory", "preview", "ad", "--json").stdout)
    assert output["refused"].startswith("would take away 25 of 60 user records")
    assert output["changes"] == {}


def test_preview_warns_of_an_empty_source(usher_in: Usher, directory: ObjectDirectory) -> None:
    """With a wrong base or scope, a read succeeds without records."""
    for key in list(directory.held):
        directory.remove(*key)
    result = usher_in("directory", "preview", "ad")
    assert result.exit_code == 1
    assert "ad: is empty: nobody gets access; check that its export is complete" in result.stderr
    output = json.loads(usher_in("directory", "preview", "ad", "--json").stdout)
    assert output["odd"].startswith("is empty: nobody gets access")


def test_preview_prints_json(usher_in: Usher, directory: ObjectDirectory) -> None:
    directory.put(thing("users", "odd", {"id": "odd"}))
    result = usher_in("directory", "preview", "ad", "--id", "odd", "--json")
    assert result.exit_code == 1
    output = json.loads(result.stdout)
    assert (output["verdict"], output["reason"], output["inForce"]) == ("partial", "1 malformed record", False)
    assert output["objects"] == [
        {
            "set": "users",
            "id": "odd",
            "place": "users/odd",
            "it": {"id": "odd"},
            "rules": [
                {
                    "rule": 1,
                    "kind": "user",
                    "record": None,
                    "reason": "name: is missing",
                    "malformed": True,
                    "through": [],
                    "wins": False,
                    "gives": [],
                }
            ],
            "leftOff": 0,
        }
    ]
    assert output["rules"][0] == {
        "rule": 1,
        "from": "users",
        "kind": "user",
        "each": None,
        "objects": 61,
        "matched": 60,
        "skipped": 0,
        "malformed": 1,
        "records": 60,
        "membersSkipped": 0,
    }


def test_preview_of_unknown_sources_and_objects(usher_in: Usher, folder: Path) -> None:
    missing = usher_in("directory", "preview", "nowhere")
    assert (missing.exit_code, missing.stderr.strip()) == (
        1,
        "error: no source is called 'nowhere'; there are: directory.yaml",
    )
    nobody = usher_in("directory", "preview", "directory.yaml", "--id", "nobody")
    assert nobody.exit_code == 1
    assert "directory.yaml has nothing with the id 'nobody'" in nobody.stderr
    (folder / "directory.yaml").unlink()
    gone = usher_in("directory", "preview", "directory.yaml")
    assert gone.exit_code == 1
    assert "could not be read: directory.yaml: No such file" in gone.stderr
