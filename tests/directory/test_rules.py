"""The settings of rules, and the records that rules make."""

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from app.access.records import Fill, GroupMember, Membership, User
from app.directory.mapping.settings import RULE_KINDS, RuleSettings
from app.directory.mapping.source import MappedSource
from app.directory.source import Found
from app.directory.testing.world import read
from tests.worlds.object_directory import ObjectDirectory, rules_of, thing

USER = "userId: it.id, name: it.name, email: it.mail"


@pytest.mark.parametrize(
    ("rule", "key", "reason"),
    [
        ("{user: {userId: it.id}}", "from", "Field required"),
        ("{from: users}", "", "exactly one kind .* but it has none"),
        ("{from: users, user: {userId: it.a}, group: {groupName: it.b}}", "", "but it has user and group"),
        ("{from: users, users: {userId: it.a}}", "users", "Extra inputs"),
        (f"{{from: users, when: mail, user: {{{USER}}}}}", "when", "there is no name mail; did you mean it.mail?"),
        (f"{{from: users, when: 3, user: {{{USER}}}}}", "when", "valid string"),
        (f"{{from: users, when: lower(it.a), user: {{{USER}}}}}", "", "when: lower.it.a. is neither true nor false"),
        ("{from: users, user: {userId: lowercase(it.id)}}", "user.userId", "no function lowercase; did you mean lower"),
        ("{from: users, user: {userId: it.id, n: null}}", "user.n", "should be an expression"),
        ("{from: users, user: {userId: it.id, n: [1]}}", "user.n", "should be an expression"),
        ("{from: users, user: {userId: it.id, n: .nan}}", "user.n", "should be an expression"),
        ("{from: users, user: {}}", "user", "at least 1 item"),
        (
            "{from: users, user: {userId: it.id}}",
            "",
            "user: lacks name, email, which every record of it needs",
        ),
        ("{from: users, user: {userId: it.id, name: it.id}}", "", "user: lacks email, which every record of it"),
        (
            f"{{from: users, user: {{{USER}, kind: it.k}}}}",
            "",
            "user.kind: is not a field; the rule makes records of the kind",
        ),
        ("{from: users, user: {userId: it.id, name: it.n}}", "", "user: lacks email"),
        (f"{{from: users, user: {{{USER}, emial: it.a}}}}", "", ""),
        ("{from: users, user: {userId: it.id, name: it.n, emial: it.a}}", "", "user: 'emial': .* did you mean email"),
        ("{from: g, membership: {organizationId: it.a}}", "", "membership: lacks one of userId or userAlias"),
        (
            "{from: g, membership: {organizationId: it.a, userId: it.b, until: it.c}}",
            "",
            "'until': is not a field of a membership",
        ),
        ("{from: g, membership: {organizationId: it.a, userId: member.userId}}", "", "member exists only in rules"),
        ("{from: g, fill: it.a, user: {name: member.cn}}", "", "user.name: member exists only in rules"),
        ("{from: g, fill: member.mail, user: {name: it.cn}}", "", "fill: member exists only in rules"),
        ("{from: g, fill: it.a, user: {kind: it.k}}", "", "user.kind: is not a field"),
        ("{from_: g, group: {organizationId: it.a}}", "from_", "Extra inputs"),
        ("{from: g, each: groups, membership: {organizationId: it.a, userId: it.b}}", "each", "members"),
        (
            "{from: g, aliases: [it.a], group: {organizationId: it.a}}",
            "",
            "aliases are only for rules that make a user",
        ),
        ("{from: g, fill: it.a, group: {organizationId: it.a}}", "", "a rule makes records|fill needs the fields"),
        ("{from: g, fill: it.a}", "", "but it has none"),
        ("{from: g, fill: mail, user: {a: 1}}", "fill", "there is no name mail"),
        ("{from: g, fill: {userId: mail}}", "fill", "userId: there is no name mail"),
        ("{from: g, fill: {disabled: true}}", "", "fill: lacks one of userId or userAlias"),
        ("{from: g, fill: it.a, user: {aliases: it.b}}", "", "user: 'aliases': is set by the user's own record only"),
        ("{from: g, fill: it.a, aliases: [it.b], user: {n: it.b}}", "", "aliases are only for rules that make a user"),
        ("{from: g, fill: 3}", "fill", "an expression for an alias"),
    ],
)
def test_invalid_rules_are_rejected_with_their_place(rule: str, key: str, reason: str) -> None:
    given = yaml.safe_load(rule)
    if not reason:
        # What resembles a field that is given as well is a field of its own.
        RuleSettings.model_validate(given)
        return
    with pytest.raises(ValidationError, match=reason) as caught:
        RuleSettings.model_validate(given)
    assert key in {".".join(map(str, error["loc"])) for error in caught.value.errors()}


def test_rules_make_every_kind() -> None:
    assert set(RULE_KINDS) == {
        "organization",
        "user",
        "membership",
        "group",
        "groupMember",
        "folder",
        "document",
        "grant",
        "contextGrant",
        "fill",
    }


def test_each_of_many_errors_has_its_place() -> None:
    rules = "[{from: a, user: {userId: it.a, name: it.b, email: x}}, {from: a, when: y, group: {groupName: z}}]"
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(tuple[RuleSettings, ...]).validate_python(yaml.safe_load(rules))
    assert [error["loc"] for error in caught.value.errors()] == [
        (0, "user", "email"),
        (1, "when"),
        (1, "group", "groupName"),
    ]


def records(rules: str, *things: object) -> list[object]:
    directory = ObjectDirectory()
    directory.put(*things)  # type: ignore[arg-type]
    return [step.record for step in read(MappedSource("x", directory, rules_of(rules))) if isinstance(step, Found)]


def test_empty_and_missing_aliases_are_left_out() -> None:
    rules = f"[{{from: users, aliases: [it.mail, it.upn, it.others, it.empty], user: {{{USER}}}}}]"
    one = {"id": "1", "name": "N", "mail": "A@x", "others": ["b@x", "A@x"], "empty": ""}
    assert records(rules, thing("users", "1", one)) == [
        User(user_id="1", name="N", email="A@x", aliases=("a@x", "b@x"))
    ]


def test_a_user_of_another_source_is_filled_by_alias_or_id() -> None:
    row = thing("rows", "1", {"mail": "A@x", "status": "left", "centre": 7, "id": "u1"})
    by_alias = "[{from: rows, fill: it.mail, user: {disabled: 'it.status == \"left\"', costCenter: it.centre}}]"
    assert records(by_alias, row) == [Fill(user_alias="a@x", disabled=True, extra_fields={"costCenter": 7})]
    by_id = "[{from: rows, fill: {userId: it.id, disabled: 'it.status == \"left\"'}}]"
    assert records(by_id, row) == [Fill(user_id="u1", disabled=True)]


def test_users_may_be_named_by_an_alias() -> None:
    rules = "[{from: rows, membership: {organizationId: it.org, userAlias: it.mail}}]"
    assert records(rules, thing("rows", "1", {"org": "o", "mail": "A@x"})) == [
        Membership(organization_id="o", user_alias="a@x")
    ]
    by_member = "[{from: groups, each: members, membership: {organizationId: it.cn, userAlias: member.mail}}]"
    people = [thing("users", "1", {"mail": "A@x"}), thing("users", "2", {})]
    group = thing("groups", "g", {"cn": "o"}, ("users/1", "users/2"))
    assert records(by_member, *people, group) == [Membership(organization_id="o", user_alias="a@x")]


def test_groups_may_be_kept_as_groups() -> None:
    rules = f"""
- {{from: users, user: {{{USER}}}}}
- {{from: groups, each: members,
    groupMember: {{organizationId: '"acme"', organizationUserGroupId: it.cn, userId: member.userId}}}}
"""
    person = thing("users", "1", {"id": "u1", "name": "N", "mail": ""})
    found = records(rules, person, thing("groups", "g", {"cn": "eng"}, ("users/1",)))
    assert found[1:] == [GroupMember(organization_id="acme", organization_user_group_id="eng", user_id="u1")]


def test_the_attribute_of_the_user_id_is_found_if_it_is_plain() -> None:
    assert rules_of(f"[{{from: users, user: {{{USER}}}}}]").wanted.user_ids == {"users": "id"}
    assert rules_of("[{from: users, user: {userId: lower(it.id), name: it.a, email: it.b}}]").wanted.user_ids == {}
    two = f"[{{from: users, user: {{{USER}}}}}, {{from: users, user: {{userId: it.other, name: it.a, email: it.b}}}}]"
    assert rules_of(two).wanted.user_ids == {}


def test_the_attribute_of_the_user_alias_is_found_if_it_is_plain() -> None:
    named = "{from: rows, grant: {organizationId: it.o, documentId: it.d, userAlias: it.mail}}"
    assert rules_of(f"[{named}, {{from: rows, fill: it.mail, user: {{n: it.n}}}}]").wanted.user_aliases == {
        "rows": "mail"
    }
    assert rules_of(f"[{named}, {{from: rows, fill: lower(it.mail), user: {{n: it.n}}}}]").wanted.user_aliases == {}
