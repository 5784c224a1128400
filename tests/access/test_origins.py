"""The origins of records in files, mapped sources and pushes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path

import pytest
from sqlalchemy import Engine

from app.access.export import export_records
from app.access.origins import load_origins
from app.access.records import Document, Grant, Key, User
from app.access.refresh.pushes import NumberedPush, apply_push
from app.commands.schema import METADATA
from app.directory.bounded import BoundedSource, Policy
from app.directory.casting import record_from_object
from app.directory.mapping.source import MappedSource
from app.directory.mapping.spool_file import SpoolFile
from app.directory.pushes import PushedSource
from app.directory.source import Source
from app.foundation.database.engine import open_engine, reading
from app.sync.runs.directory_reads import read_directory
from tests.tables import make_tables
from tests.worlds.files import file_source
from tests.worlds.object_directory import ObjectDirectory, rules_of, thing

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
PEOPLE = """
- {from: users, aliases: [it.mail], user: {userId: it.id, name: it.name, email: it.mail}}
- {from: groups, organization: {organizationId: it.org, organizationName: it.org}}
- {from: groups, each: members, membership: {organizationId: it.org, userId: member.userId, accessRole: '"viewer"'}}
- {from: groups, when: has(it.until), each: members,
   membership: {organizationId: it.org, userId: member.userId, expiresAt: it.until}}
"""
PERSONNEL = """
- {from: rows, fill: it.mail, user: {disabled: it.left, initial: it.initial, costCenter: it.center}}
"""
FILE = """\
{"kind": "document", "organizationId": "acme", "documentId": "plan", "documentName": "P", "accessType": "restricted"}
{"kind": "grant", "organizationId": "acme", "documentId": "plan", "userAlias": "ADA@acme.example"}

{"kind": "contextGrant", "organizationId": "acme", "userId": "bob", "field": "f", "value": "v"}
{"kind": "group", "organizationId": "acme", "organizationUserGroupId": "eng", "groupName": "Eng"}
{"kind": "groupMember", "organizationId": "acme", "organizationUserGroupId": "eng", "userAlias": "ada@acme.example"}
{"kind": "document", "organizationId": "acme", "documentId": "pushed", "documentName": "Of the file"}
"""
LONG = "x" * 400


@dataclass
class OriginsWorld:
    """Sources, and the records that were merged from them."""

    engine: Engine
    sources: Sequence[Source]
    people: ObjectDirectory

    def read(self) -> None:
        report = read_directory(self.engine, self.sources, clock=repeat(NOW).__next__)
        assert not [source for source in report.sources if source.verdict != "complete"], report.sources

    def push(self, sequence: int, *records: dict[str, object]) -> None:
        pushed = NumberedPush(
            source="app",
            sequence=sequence,
            previous_sequence=None,
            upserts=[record_from_object(one)[0] for one in records],
            removals=[],
            by="",
        )
        apply_push(
            self.engine,
            pushed,
            configured=[source.name for source in self.sources],
            only_pushed=True,
            clock=repeat(NOW).__next__,
        )

    def described(self) -> dict[Key, list[str]]:
        """Key of each record in force → in words where it comes from."""
        with reading(self.engine) as connection:
            found = load_origins(self.engine, export_records(connection))
        return {key: [f"{one} gives {', '.join(one.provides)}" for one in origins] for key, origins in found.items()}


@pytest.fixture
def world(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OriginsWorld]:
    monkeypatch.chdir(tmp_path)
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    people = ObjectDirectory()
    people.put(
        thing("users", "ada", {"id": "ada", "name": "Ada", "mail": "Ada@acme.example"}),
        thing("users", "bob", {"id": "bob", "name": "Bob", "mail": "bob@acme.example"}),
        thing("users", LONG, {"id": "long", "name": "Long", "mail": ""}),
        thing("groups", "org", {"org": "acme"}, ("users/ada", "users/bob")),
        thing("groups", "sub", {"org": "acme", "until": "2030-01-01T00:00:00Z"}, ("users/ada",)),
        thing("groups", "twice", {"org": "acme", "until": "2029-01-01T00:00:00Z"}, ("users/ada",)),
    )
    personnel = ObjectDirectory()
    personnel.put(
        thing("rows", "7", {"mail": "ada@acme.example", "left": True, "initial": "A", "center": "C1"}),
        thing("rows", "8", {"mail": "ada@acme.example", "left": False, "initial": "Z", "center": ""}),
    )
    (tmp_path / "old.jsonl").write_text(FILE)
    sources: list[Source] = [
        MappedSource("ad", people, rules_of(PEOPLE), SpoolFile.of(tmp_path, "ad")),
        BoundedSource(PushedSource("app"), timeout=0, policy=Policy(only_pushed=True)),
        file_source(Path("old.jsonl"), name="old.jsonl"),
        MappedSource("hr", personnel, rules_of(PERSONNEL)),
    ]
    yield OriginsWorld(engine, sources, people)
    engine.dispose()


ORIGINS: Mapping[tuple[str, ...], Sequence[str]] = {
    ("organization", "acme"): ["ad: groups groups/org, id org, rule 2 gives organizationName, accessType, disabled"],
    ("user", "ada"): [
        "ad: users users/ada, id ada, rule 1 gives name, email",
        "hr: rows rows/7, id 7, rule 1 gives costCenter, initial, disabled",
    ],
    ("user", "bob"): ["ad: users users/bob, id bob, rule 1 gives name, email, disabled"],
    # Of a long id a digest is kept.
    ("user", "long"): [f"ad: users users/{LONG}, rule 1 gives name, disabled"],
    ("membership", "acme", "ada"): [
        "ad: groups groups/org, id org, rule 3 gives expiresAt",
        "ad: groups groups/sub, id sub, rule 3 gives expiresAt",
        "ad: groups groups/sub, id sub, rule 4 gives accessRole",
        "ad: groups groups/twice, id twice, rule 3 gives expiresAt",
        "ad: groups groups/twice, id twice, rule 4 gives accessRole",
    ],
    ("membership", "acme", "bob"): ["ad: groups groups/org, id org, rule 3 gives accessRole, expiresAt"],
    ("document", "acme", "plan"): ["old.jsonl:1 gives documentName, accessType"],
    ("document", "acme", "pushed"): ["app: push 4, upsert[1] gives documentName"],
    ("group", "acme", "eng"): ["old.jsonl:5 gives groupName"],
    ("groupMember", "acme", "eng", "ada", ""): ["old.jsonl:6 gives "],
    # The source of higher priority wins the merge, although its record has fewer fields.
    ("grant", "acme", "", "plan", "ada", ""): ["app: push 4, upsert[0] gives accessRole, expiresAt"],
    ("contextGrant", "acme", "bob", "", "f", "v", ""): ["old.jsonl:4 gives expiresAt"],
}


def test_origins_of_records(world: OriginsWorld) -> None:
    world.read()
    world.push(
        4,
        {"kind": "grant", "organizationId": "acme", "documentId": "plan", "userId": "ada", "accessRole": "viewer"},
        {"kind": "document", "organizationId": "acme", "documentId": "pushed", "documentName": "Of the push"},
    )
    assert world.described() == ORIGINS


def test_alias_of_several_users_has_no_origin(world: OriginsWorld) -> None:
    world.push(
        1,
        {"kind": "user", "userId": "zoe", "name": "Zoe", "email": "", "aliases": ["ada@acme.example"]},
        {"kind": "document", "organizationId": "acme", "documentId": "plan", "documentName": "P"},
        {"kind": "grant", "organizationId": "acme", "documentId": "plan", "userId": "ada"},
    )
    world.read()
    grant = Grant(organization_id="acme", document_id="plan", user_id="ada")
    user = User(user_id="ada", name="Ada", email="Ada@acme.example")
    found = load_origins(world.engine, [grant, user, grant])
    assert {key: [one.source for one in origins] for key, origins in found.items()} == {
        grant.key: ["app"],
        # The fills name her by that alias, too: the one that disables counts.
        user.key: ["ad", "hr"],
    }
    assert str(found[user.key][1]) == (
        "hr: rows rows/7, id 7, rule 1, under 'ada@acme.example', an alias that several users have"
    )
    world.people.put(thing("users", "ada", {"id": "ada", "name": "Ada", "mail": "new@acme.example"}))
    world.read()
    (one,) = [one for one in load_origins(world.engine, [user])[user.key] if one.source == "hr"]
    assert (str(one), one.provides) == (
        "hr: rows rows/7, id 7, rule 1, under 'ada@acme.example', an alias that this user had",
        ("disabled",),
    )


def test_unconfigured_source_is_marked_as_retained(world: OriginsWorld) -> None:
    world.read()
    world.sources = world.sources[:2]
    world.read()
    plan = Document(organization_id="acme", document_id="plan", document_name="")
    unknown = Document(organization_id="acme", document_id="\N{GREEK SMALL LETTER ALPHA}", document_name="")
    found: dict[Key, list[dict[str, object]]] = {
        key: [one.to_wire() for one in origins] for key, origins in load_origins(world.engine, [plan, unknown]).items()
    }
    assert found == {
        plan.key: [
            {
                "source": "old.jsonl",
                "retained": True,
                "place": "old.jsonl:1",
                "set": None,
                "id": None,
                "rule": None,
                "gives": ["documentName", "accessType"],
                "alias": None,
            }
        ]
    }
