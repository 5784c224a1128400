"""Previews of sources: objects, counts of rules, and masked secrets."""

import pytest

from app.access.records import Membership, User
from app.directory.connector import DirectoryObject
from app.directory.mapping.source import MappedSource
from app.directory.preview import MAX_RESULTS, PreviewedObject, PreviewedSource, PreviewFilter, masked
from app.directory.source import EVERYTHING, End, Found, ObjectId, Origin, Reading, ReadRequest, Verdict
from app.directory.testing.world import read
from app.foundation.secrets import MASK
from tests.worlds.object_directory import ObjectDirectory, rules_of, thing

RULES = """
- {from: users, when: has(it.mail), user: {userId: it.id, name: it.name, email: lower(it.mail), apiToken: it.apiToken}}
- {from: groups, when: 'it.cn.startsWith("org-")', each: members,
   membership: {organizationId: it.cn.substring(4), userId: member.userId, accessRole: '"viewer"'}}
- {from: groups, when: 'it.cn.startsWith("edit-")', each: members,
   membership: {organizationId: it.cn.substring(5), userId: member.userId}}
- {from: groups, organization: {organizationId: it.cn, organizationName: it.description}}
"""


def user(id_: str, **values: object) -> DirectoryObject:
    value = {"id": id_, "name": id_.title(), "mail": f"{id_}@Corp.Example", "apiToken": "hunter2", **values}
    return thing("users", id_, value)


@pytest.fixture
def directory() -> ObjectDirectory:
    directory = ObjectDirectory()
    directory.put(
        user("ada"),
        thing("users", "bob", {"id": "bob"}),
        user("cyd", name="\0"),
        thing("groups", "acme", {"cn": "org-acme", "description": "Acme"}, ("groups/eng", "users/bob", "x")),
        thing("groups", "eng", {"cn": "eng", "description": "Eng"}, ("users/ada",)),
        thing("groups", "edit", {"cn": "edit-acme"}, ("users/ada",)),
    )
    return directory


def previewed(directory: ObjectDirectory, choice: PreviewFilter) -> PreviewedSource:
    source = PreviewedSource(MappedSource("ad", directory, rules_of(RULES)), choice)
    read(source)
    return source


def only(source: PreviewedSource) -> PreviewedObject:
    (shown,) = source.objects
    return shown


@pytest.mark.parametrize("id_", ["ada", "users/ada", "ADA@corp.EXAMPLE"])
def test_one_user_is_explained(directory: ObjectDirectory, id_: str) -> None:
    shown = only(previewed(directory, PreviewFilter(5, id=id_)))
    assert (shown.id, shown.place) == (ObjectId("users", "ada"), "users/ada")
    assert shown.value == {"apiToken": MASK, "id": "ada", "mail": "ada@Corp.Example", "name": "Ada"}
    assert [(line.rule, line.kind, line.through, line.wins) for line in shown.results] == [
        ("1", "user", (), False),
        ("2", "membership", ["groups/acme", "groups/eng"], False),
        ("3", "membership", ["groups/edit"], True),
    ]
    assert shown.results[0].record == {"userId": "ada", "name": "Ada", "email": "ada@corp.example", "apiToken": MASK}
    assert shown.results[1].record == {"organizationId": "acme", "userId": "ada", "accessRole": "viewer"}


def test_the_preview_explains_missing_records(directory: ObjectDirectory) -> None:
    bob = only(previewed(directory, PreviewFilter(5, id="bob")))
    assert [(line.rule, line.record, line.reason, line.malformed) for line in bob.results] == [
        ("1", None, "when is false", False),
        ("2", None, "no user is made of the member", False),
    ]
    cyd = only(previewed(directory, PreviewFilter(5, set="users", id="cyd")))
    assert [(line.reason, line.malformed) for line in cyd.results] == [("name: contains a NUL character", True)]
    edit = only(previewed(directory, PreviewFilter(5, set="groups", id="edit")))
    assert [(line.rule, line.reason) for line in edit.results if line.record is None] == [
        ("2", "when is false"),
        ("4", "organizationName: is missing"),
    ]


def test_objects_of_a_set_are_shown_up_to_the_limit(directory: ObjectDirectory) -> None:
    assert [one.place for one in previewed(directory, PreviewFilter(2, set="groups")).objects] == [
        "groups/acme",
        "groups/eng",
    ]
    assert [one.place for one in previewed(directory, PreviewFilter(1)).objects] == ["users/ada"]
    assert not previewed(directory, PreviewFilter(0)).objects
    assert not previewed(directory, PreviewFilter(5, id="nobody")).objects


def test_the_results_of_each_rule_are_counted(directory: ObjectDirectory) -> None:
    source = previewed(directory, PreviewFilter(0))
    counted = [
        (one.objects, one.matched, one.skipped, one.malformed, one.records, one.members_skipped)
        for one in source.counts.values()
    ]
    assert counted == [(3, 1, 1, 1, 1, 0), (3, 1, 2, 0, 1, 1), (3, 1, 2, 0, 1, 0), (3, 2, 0, 1, 2, 0)]
    assert source.kinds == {"user": 1, "membership": 2, "organization": 2}
    assert source.malformed == 2
    assert source.end == End(Verdict.PARTIAL, "2 malformed records", "state 6", except_malformed=True)


def test_large_groups_are_shown_in_part(directory: ObjectDirectory) -> None:
    directory.put(*(user(f"u{number}") for number in range(100)))
    directory.put(thing("groups", "all", {"cn": "org-all"}, tuple(f"users/u{number}" for number in range(100))))
    shown = only(previewed(directory, PreviewFilter(5, set="groups", id="all")))
    assert len(shown.results) == MAX_RESULTS
    assert shown.omitted == 102 - MAX_RESULTS


@pytest.mark.parametrize(
    "name",
    ["userPassword", "unicodePwd", "clientSecret", "api_key", "apiKey", "accessToken", "private-key", "PIN", "ssn"],
)
def test_secrets_are_masked_at_any_depth(name: str) -> None:
    assert masked({name: "x", "in": [{name: ["y"]}], "of": {name: 3}}) == {
        name: MASK,
        "in": [{name: MASK}],
        "of": {name: MASK},
    }


@pytest.mark.parametrize("name", ["mail", "department", "keynote", "opinion", "compass", "shipping"])
def test_other_values_are_shown(name: str) -> None:
    assert masked({name: "x"}) == {name: "x"}


def test_records_of_a_source_without_rules_are_shown() -> None:
    class Queries:
        name = "db"

        def read(self, request: ReadRequest = EVERYTHING) -> Reading:
            row = ObjectId("users", "7")
            yield Found(User(user_id="u7", name="N", email="n@x", extra_fields={"pin": 1}), "users, row 1", Origin(row))
            yield Found(Membership(organization_id="o", user_id="u7"), "users, row 1", Origin(row))
            yield Found(User(user_id="u8", name="M", email=""), "file:2")
            yield End(Verdict.COMPLETE, cursor="1")

    source = PreviewedSource(Queries(), PreviewFilter(5, id="u7"))
    assert read(source)[-1] == End(Verdict.COMPLETE)
    shown = only(source)
    assert (shown.id, shown.place, shown.value) == (ObjectId("users", "7"), "users, row 1", {})
    assert [(line.kind, line.record) for line in shown.results] == [
        ("user", {"userId": "u7", "name": "N", "email": "n@x", "pin": MASK}),
        ("membership", {"organizationId": "o", "userId": "u7", "accessRole": "editor"}),
    ]
    assert source.kinds == {"user": 2, "membership": 1}
