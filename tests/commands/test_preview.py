"""``usher directory preview``: files as they stand, sources with rules, and what a read would change."""

import json
from pathlib import Path

import pytest
from click.testing import Result

from app.directory.guarded import GuardedSource
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
    """A directory with rules, which takes the place of the sources that are configured."""
    directory = ObjectDirectory()
    directory.put(
        *(thing("users", f"u{n}", {"id": f"u{n}", "name": f"U {n}", "mail": f"u{n}@x.example"}) for n in range(60)),
        thing("groups", "acme", {"cn": "acme"}, tuple(f"users/u{n}" for n in range(60))),
    )

    def sources(*_: object, **__: object) -> list[GuardedSource]:
        return [GuardedSource(MappedSource("ad", directory, rules_of(RULES)), timeout=30)]

    monkeypatch.setattr("app.commands.bootstrap.peers.sources_from_settings", sources)
    return directory


def lines(result: Result) -> list[list[str]]:
    return [line.split("\t") for line in result.stdout.splitlines()]


def test_a_file_is_shown_as_it_stands(usher_in: Usher) -> None:
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


def test_the_difference_from_what_is_in_force_is_told_and_nothing_is_changed(usher_in: Usher, folder: Path) -> None:
    usher_in("directory", "refresh")
    text = (folder / "directory.yaml").read_text()
    (folder / "directory.yaml").write_text(
        text.replace("Bob", "Robert").replace("documentId: handbook", "documentId: h2")
    )
    for _ in range(2):
        told = usher_in("directory", "preview", "directory.yaml").stdout
        assert (
            "compared with the records in force: user +0 ~1 -0; document +1 ~0 -1; guard: passes, would remove 1 of 2"
            " document records; a read is refused above 20 records and 20 percent"
        ) in told
    checked = usher_in("directory", "check")
    assert "guard: no kind has fewer records than are in force" in checked.stderr.splitlines()
    (folder / "directory.yaml").write_text(text.replace("  - {organizationId: acme, userId: ada}\n", ""))
    says = "1 of 2 membership records; a read is refused above 20 records and 20 percent"
    assert (
        f"source directory.yaml would take away at least {says}" in usher_in("directory", "check").stderr.splitlines()
    )
    told = json.loads(usher_in("directory", "preview", "directory.yaml", "--json").stdout)
    assert (told["losses"], told["guard"]) == (
        [{"kind": "membership", "gone": 1, "kept": 2}],
        {"count": 20, "percent": 20},
    )
    assert f"source directory.yaml takes away {says}" in usher_in("directory", "refresh").stderr.splitlines()
    assert "guard: nothing is taken away" in usher_in("directory", "refresh").stderr.splitlines()


def test_what_rules_make_is_shown_and_counted(usher_in: Usher, directory: ObjectDirectory) -> None:
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


def test_the_role_and_the_end_may_come_from_different_groups(
    usher_in: Usher, directory: ObjectDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    further = "userId: member.userId, accessRole: it.role, expiresAt: it.until}"
    rules = RULES.replace("userId: member.userId}", further)
    directory.put(
        thing("groups", "acme", {"cn": "acme", "role": "viewer"}, ("users/u0", "users/u1")),
        thing("groups", "sub", {"cn": "acme", "role": "editor", "until": "2030-01-01T00:00:00Z"}, ("users/u0",)),
        thing("groups", "all", {"cn": "acme", "role": "editor"}, ("users/u1",)),
    )

    def gives(user: str) -> list[str]:
        text = usher_in("directory", "preview", "ad", "--id", user).stdout
        return [line.partition("through ")[2] for line in text.splitlines() if "membership" in line]

    monkeypatch.setattr("tests.commands.test_preview.RULES", rules)
    assert gives("u0") == ["groups/acme   (provides expiresAt)", "groups/sub   (provides accessRole)"]
    assert gives("u1") == ["groups/acme", "groups/all   (wins)"]
    told = json.loads(usher_in("directory", "preview", "ad", "--id", "u1", "--json").stdout)["objects"][0]["rules"]
    assert [(one["wins"], one["gives"]) for one in told[1:]] == [
        (False, ["expiresAt"]),
        (True, ["accessRole", "expiresAt"]),
    ]


def test_the_guard_has_its_word(usher_in: Usher, directory: ObjectDirectory) -> None:
    assert usher_in("directory", "refresh").exit_code == 0
    for number in range(25):
        directory.remove("users", f"u{number}")
    result = usher_in("directory", "preview", "ad")
    assert result.exit_code == 1
    assert "refused: would take away 25 of 60 user records" in result.stdout
    assert "usher directory refresh --accept-shrink ad" in result.stdout
    told = json.loads(usher_in("directory", "preview", "ad", "--json").stdout)
    assert told["refused"].startswith("would take away 25 of 60 user records")
    assert told["changes"] == {}


def test_a_source_that_gives_nothing_is_odd(usher_in: Usher, directory: ObjectDirectory) -> None:
    """A wrong base or scope gives success, and nothing."""
    for one in list(directory.held):
        directory.remove(*one)
    result = usher_in("directory", "preview", "ad")
    assert result.exit_code == 1
    assert "ad: is empty: it lets nobody in; see whether its export ran to the end" in result.stderr
    told = json.loads(usher_in("directory", "preview", "ad", "--json").stdout)
    assert told["odd"].startswith("is empty: it lets nobody in")


def test_programs_are_told_the_same(usher_in: Usher, directory: ObjectDirectory) -> None:
    directory.put(thing("users", "odd", {"id": "odd"}))
    result = usher_in("directory", "preview", "ad", "--id", "odd", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert (told["verdict"], told["reason"], told["inForce"]) == ("partial", "1 malformed record", False)
    assert told["objects"] == [
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
    assert told["rules"][0] == {
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


def test_what_is_not_there_is_said(usher_in: Usher, folder: Path) -> None:
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
