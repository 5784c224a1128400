"""``usher access``: lists of access on the command line."""

import json
from pathlib import Path

import pytest

from tests.commands.conftest import Usher


@pytest.fixture
def refreshed(usher_in: Usher) -> Usher:
    assert usher_in("directory", "refresh").exit_code == 0
    return usher_in


def test_user_lists_resources(refreshed: Usher) -> None:
    result = refreshed("access", "user", "cleo", "--organization", "acme")
    assert result.exit_code == 0
    assert result.stdout == "document\troadmap\teditor\town_grant\t2030-01-01T12:00:00.000Z\tRoadmap\n"
    later = refreshed("access", "user", "cleo", "--organization", "acme", "--at", "2030-01-01T12:00:00Z")
    assert (later.exit_code, later.stdout) == (0, "")
    of_ada = refreshed("access", "user", "ada", "--organization", "acme", "--type", "organization", "--role", "editor")
    assert of_ada.stdout == "organization\tacme\teditor\tmember\t\tAcme\n"


def test_document_lists_users(refreshed: Usher) -> None:
    result = refreshed("access", "document", "handbook", "--organization", "acme")
    assert result.stdout.splitlines() == [
        "user\tada\teditor\tmember_access\t\tAda [bold]Lovelace[/bold]",
        "user\tbob\tviewer\tmember_access\t\tBob",
    ]
    assert result.stderr == "organizationPrivate: open to members, 2 in the directory\n"
    assert len(refreshed("access", "organization", "acme").stdout.splitlines()) == 2


def test_a_limit_is_stated(refreshed: Usher) -> None:
    limited = refreshed("access", "organization", "acme", "--limit", "1")
    assert len(limited.stdout.splitlines()) == 1
    assert limited.stderr.endswith("more: --limit 1 left out the rest\n")
    assert "more" not in refreshed("access", "organization", "acme", "--limit", "2").stderr


def test_as_json(refreshed: Usher) -> None:
    result = refreshed("access", "user", "ada", "--organization", "acme", "--limit", "1", "--json")
    listed = json.loads(result.stdout)
    assert listed.pop("at").endswith("Z")
    assert listed == {
        "userId": "ada",
        "organizationId": "acme",
        "resources": [{"type": "organization", "id": "acme", "name": "Acme", "accessRole": "editor", "rule": "member"}],
        "revision": 1,
        "revisionChanged": False,
        "hasMore": True,
    }
    users = json.loads(refreshed("access", "document", "roadmap", "--organization", "acme", "--json").stdout)
    assert users["openTo"] == {"accessType": "restricted", "to": "nobody", "records": 0}
    assert [user["expiresAt"] for user in users["users"]] == ["2030-01-01T12:00:00.000Z"]
    empty = json.loads(
        refreshed("access", "user", "cleo", "--organization", "acme", "--type", "folder", "--json").stdout
    )
    assert (empty["resources"], empty["hasMore"]) == ([], False)


def test_lists_longer_than_a_page(refreshed: Usher, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.commands.access._PAGE_ROWS", 1)
    result = refreshed("access", "organization", "acme", "--json")
    assert [user["id"] for user in json.loads(result.stdout)["users"]] == ["ada", "bob"]
    assert [line.split("\t")[1] for line in refreshed("access", "organization", "acme").stdout.splitlines()] == [
        "ada",
        "bob",
    ]
    assert (folder / "usher.db").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["user", "eve", "--organization", "acme"], 1, "error: user eve is not in the directory"),
        (["user", "ada", "--organization", "x"], 1, "error: organization x is not in the directory"),
        (["document", "x", "--organization", "acme"], 1, "error: organization acme has no document x"),
        (["user", "x" * 600, "--organization", "acme"], 1, "error: ID: must be valid text"),
        (["user", "", "--organization", "acme"], 1, "error: ID: must not be empty"),
        (["user", "ada", "--organization", ""], 1, "error: --organization: must not be empty"),
        (["user", "ada"], 2, "a user needs --organization ORG"),
        (["folder", "x", "--organization", "acme", "--type", "folder"], 2, "--type requires KIND user"),
        (["organization", "acme", "--organization", "x"], 2, "--organization must be ID"),
        (["user", "ada", "--organization", "acme", "--at", "noon"], 2, "write a time with a zone"),
        (["user", "ada", "--organization", "acme", "--limit", "0"], 2, "--limit"),
    ],
)
def test_wrong_arguments(refreshed: Usher, arguments: list[str], code: int, message: str) -> None:
    result = refreshed("access", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_a_directory_that_was_never_read(usher_in: Usher) -> None:
    result = usher_in("access", "organization", "acme")
    assert (result.exit_code, result.stderr) == (
        1,
        "error: the directory was never read: run usher directory refresh, or a sync\n",
    )
