"""The settings and presets of LDAP sources."""

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from app.access.records import Fill, User
from app.directory.configured import sources_from_settings
from app.directory.connectors.ldap.settings import (
    LdapConnectionSettings,
    PresetName,
    preset,
)
from app.directory.mapping.cel import Variables, language
from app.directory.mapping.rules import Made, MemberRule, Rules
from app.directory.settings import DirectorySettings, LdapSourceSettings
from app.settings import load_settings

RULE = {"from": "users", "user": {"userId": "it.uid", "name": "it.cn", "email": "it.mail"}}
PLAIN = {"url": "ldaps://dc1.corp.example", "base": "DC=corp,DC=example", "preset": "active_directory"}


def made(**settings: object) -> LdapConnectionSettings:
    return LdapConnectionSettings.model_validate(PLAIN | settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": []}, "should name one server, or a list of different ones"),
        ({"url": ["ldaps://dc1", "ldaps://dc1/"]}, "a list of different ones"),
        ({"url": ["ldaps://dc1", "ldap://dc2"]}, "url: ldap:// without starttls"),
        ({"url": ["ldaps://dc1", "https://dc2"]}, "should begin with ldaps://"),
        ({"url": "https://dc1"}, "should begin with ldaps://, ldap:// or ldapi://"),
        ({"url": "dc1.corp.example"}, "should begin with ldaps://"),
        ({"url": "ldaps://"}, "should be ldaps://HOST"),
        ({"url": "ldaps://dc1:70000"}, "not an address"),
        ({"url": "ldaps://dc1/DC=corp"}, "the base goes into base"),
        ({"url": "ldaps://dc1?sub"}, "the base goes into base"),
        ({"url": "ldaps://a ldaps://b"}, "should name one server"),
        ({"url": "ldaps://me:secret@dc1"}, "should hold no user and password"),
        ({"url": "ldap://dc1"}, "url: ldap:// without starttls would send names and the password readable"),
        ({"url": "ldap://10.0.0.1"}, "url: ldap:// without starttls"),
        ({"url": "ldap://127.0.0.1.corp.example"}, "url: ldap:// without starttls"),
        ({"starttls": True}, "starttls belongs to ldap://"),
        ({"base": "corp.example"}, "not a DN"),
        ({"preset": "novell"}, "preset"),
        (
            {"bind_dn": "CN=usher"},
            "bind_password is empty: servers treat a bind_dn without a password as anonymous",
        ),
        ({"bind_password": "x"}, "bind_password is given without bind_dn"),
        ({"bind_dn": "a", "bind_password": "x", "sasl": "gssapi"}, "sasl: gssapi needs no bind_dn"),
        ({"sasl": "digest-md5"}, "sasl"),
        ({"cert_file": "a.pem"}, "cert_file and key_file belong together"),
        ({"sets": {"users\x1f": {}}}, "the name of a set cannot contain the control character U+001F"),
        ({"connect_timeout": 0}, "connect_timeout"),
        ({"answer_timeout": 0}, "answer_timeout"),
        ({"page_size": 0}, "page_size"),
        ({"sets": {"users": {"filter": "objectClass=person"}}}, "not an LDAP filter"),
        ({"sets": {"users": {"filter": "(&(a=b)"}}}, "as many"),
        ({"sets": {"devices": {"id": "cn"}}}, "sets.devices: the preset has no such set"),
        ({"sets": {"users": {"fitler": "(a=b)"}}}, "fitler"),
        ({"sets": {"users": {"id": "object GUID"}}}, "not the name of an attribute"),
        ({"lists": ["a b"]}, "not the name of an attribute"),
        ({"convert": {"x": "number"}}, "convert"),
        ({"tls_check": False}, "tls_check"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        made(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "ldap://localhost"},
        {"url": "ldap://127.8.9.1:3389"},
        {"url": "ldap://[::1]"},
        {"url": "ldapi://%2Frun%2Fslapd%2Fldapi", "sasl": "external"},
        {"url": "ldap://dc1", "starttls": True},
        {"url": "ldap://dc1", "allow_plaintext": True},
        {"url": ["ldaps://dc1", "ldaps://dc2:3269"]},
        {"sasl": "gssapi"},
        {"cert_file": "a.pem", "key_file": "a.key", "sasl": "external"},
        {"sets": {"devices": {"id": "cn", "filter": "(objectClass=device)"}}},
    ],
)
def test_safe_settings_are_accepted(settings: dict[str, object]) -> None:
    assert made(**settings).server.startswith("ldap")


@pytest.mark.parametrize("name", get_args(PresetName))
def test_every_preset_has_people_and_groups(name: PresetName) -> None:
    known = preset(name)
    assert list(known.sets) == ["users", "groups"]
    for one in known.sets.values():
        assert one.filter is not None
        assert one.id is not None
    assert known.sets["groups"].members
    assert not {attribute.lower() for attribute in known.lists} & {
        one.id.lower() for one in known.sets.values() if one.id
    }


def test_sets_are_those_of_the_preset_with_changes() -> None:
    settings = made(sets={"users": {"below": "OU=People"}, "devices": {"filter": "(objectClass=device)", "id": "cn"}})
    sets = settings.sets_in_force()
    assert list(sets) == ["users", "groups", "devices"]
    assert sets["users"].below == "OU=People"
    assert sets["users"].id == "objectGUID"
    assert sets["users"].filter == preset("active_directory").sets["users"].filter
    assert settings.preset_in_force().convert["userAccountControl"] == "integer"
    assert made(convert={"x": "sid"}, lists=["y"]).preset_in_force().convert["x"] == "sid"


def source(**settings: object) -> dict[str, object]:
    return PLAIN | {"type": "ldap", "map": [RULE]} | settings


def test_a_source_is_made_of_the_settings() -> None:
    settings = DirectorySettings.model_validate({"sources": [source(), source(name="ad")]})
    assert [one.name for one in sources_from_settings(settings)] == [
        "ldaps://dc1.corp.example/DC=corp,DC=example",
        "ad",
    ]


def test_a_rule_must_read_an_existing_set() -> None:
    with pytest.raises(ValidationError, match="map: rule 1 reads from people, but the sets are users, groups"):
        DirectorySettings.model_validate({"sources": [source(map=[RULE | {"from": "people"}])]})
    with pytest.raises(ValidationError, match="at least 1 item"):
        DirectorySettings.model_validate({"sources": [source(map=[])]})


def test_the_digest_depends_on_the_settings_but_not_on_the_password() -> None:
    one = LdapSourceSettings.model_validate(source(bind_dn="a", bind_password="first-password"))
    other = LdapSourceSettings.model_validate(source(bind_dn="a", bind_password="second-password"))
    assert one.digest == other.digest
    assert one.digest != LdapSourceSettings.model_validate(source(base="DC=other")).digest
    assert "first-password" not in repr(one)
    assert "first-password" not in str(one.identity())
    assert "first-password" not in str(one.model_dump(mode="json"))


def test_the_example_is_valid(tmp_path: Path) -> None:
    """With the secrets in the files that it names."""
    text = Path("config/examples/active-directory.yaml").read_text("utf-8")
    secret = tmp_path / "secret"
    secret.write_text("sesame")
    copy = tmp_path / "usher.yaml"
    copy.write_text(re.sub(r"/run/secrets/\w+", str(secret), text))
    directory = load_settings(copy, environment={}).settings.directory
    ad = directory.sources[0]
    assert isinstance(ad, LdapSourceSettings)
    assert ad.bind_password.get_secret_value() == "sesame"
    assert [one.name for one in sources_from_settings(directory)] == ["ad"]


IDS = {"userId": "it.cn", "name": "it.cn", "email": "it.cn"}
UAC = "math.bitAnd(it.userAccountControl, 2) != 0"


@pytest.mark.parametrize(
    ("rule", "value", "disabled"),
    [
        ({"user": IDS}, {"userAccountControl": 512}, (False, True)),
        ({"user": IDS | {"disabled": UAC}}, {"userAccountControl": 512}, (False, True)),
        ({"user": IDS | {"disabled": UAC}}, {"userAccountControl": 514}, (True, True)),
        ({"user": IDS | {"disabled": UAC}}, {"userAccountControl": "?"}, (None, True)),
        ({"user": IDS | {"disabled": f"{UAC} // as in the manual"}}, {"userAccountControl": 512}, (False, True)),
        ({"user": IDS | {"disabled": "has(it.a) || has(it.b)"}}, {"b": 1}, (True, True)),
        ({"user": IDS | {"disabled": "string(it.a)"}}, {"a": "left"}, (None, True)),
        ({"user": IDS | {"disabled": "it.a"}}, {}, (False, True)),
        ({"user": IDS | {"disabled": False}}, {}, (False, True)),
        ({"user": IDS | {"disabled": True}}, {}, (True, True)),
        ({"fill": "it.cn", "user": {"disabled": UAC}}, {"userAccountControl": 512}, (False, True)),
        ({"fill": {"userId": "it.cn", "disabled": UAC}}, {"userAccountControl": 512}, (False, True)),
    ],
)
def test_expired_accounts_are_disabled_in_addition_to_the_rule(
    rule: dict[str, object], value: dict[str, object], disabled: tuple[bool | None, bool | None]
) -> None:
    """None: malformed."""
    for account_expiry in (True, False):
        settings = LdapSourceSettings.model_validate(
            PLAIN | {"type": "ldap", "map": [{"from": "users"} | rule], "account_expiry": account_expiry}
        )
        rules = Rules(settings.rules_in_force())
        given = {"cn": "ann"} | value
        for expired in (False, True):
            asked = Variables(language("it"), {"it": given | ({"account_expired": True} if expired else {})})
            made = rules.all[0].apply(asked)
            found = made.record.disabled if isinstance(made, Made) and isinstance(made.record, User | Fill) else None
            assert bool(found) == bool(disabled[expired and account_expiry])
            assert isinstance(made, Made) == (disabled[expired and account_expiry] is not None)


@pytest.mark.parametrize(
    "rule",
    [
        {"from": "users", "fill": "it.cn", "user": {"department": "it.department"}},
        {"from": "people", "user": IDS},
        {
            "from": "groups",
            "group": {"organizationId": "it.cn", "organizationUserGroupId": "it.cn", "groupName": "it.cn"},
        },
    ],
)
def test_rules_without_expiry_are_unchanged(rule: dict[str, object]) -> None:
    people = {"people": {"filter": "(objectClass=contact)", "id": "objectGUID"}}
    settings = LdapSourceSettings.model_validate(PLAIN | {"type": "ldap", "sets": people, "map": [rule]})
    assert settings.rules_in_force() == settings.map


def test_users_made_of_expired_members_are_disabled() -> None:
    rule = {"from": "groups", "each": "members", "user": {"userId": "member.cn", "name": "member.cn", "email": "it.cn"}}
    settings = LdapSourceSettings.model_validate(PLAIN | {"type": "ldap", "map": [rule]})
    rules = Rules(settings.rules_in_force())
    assert "account_expired" in rules.wanted.attributes["users"]
    members: list[dict[str, object]] = [{"cn": "ann"}, {"cn": "bob", "account_expired": True}]
    begun = rules.all[0].begin(Variables(language("it", "member"), {"it": {"cn": "g"}, "member": {}}))
    assert isinstance(begun, MemberRule)
    outcomes = [
        begun.apply(Variables(language("it", "member"), {"it": {"cn": "g"}, "member": member})) for member in members
    ]
    records = [one.record for one in outcomes if isinstance(one, Made)]
    assert [one.disabled for one in records if isinstance(one, User)] == [False, True]


def test_an_expression_too_long_with_expiry_is_rejected() -> None:
    text = '"' + "x" * 3_980 + '" == it.a'
    rules = {"type": "ldap", "map": [{"from": "users", "user": IDS | {"disabled": text}}]}
    assert LdapSourceSettings.model_validate(PLAIN | rules | {"account_expiry": False})
    with pytest.raises(
        ValidationError, match=r"map: rule 1: user\.disabled, with account_expiry, is longer than 4,000"
    ):
        LdapSourceSettings.model_validate(PLAIN | rules)
