"""Active Directory (Samba): large groups, primary groups, tombstones, and rights of the reader."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from app.directory.configured import source_from_settings
from app.directory.connector import RequestedFields
from app.directory.connectors.ldap.connector import LdapConnector
from app.directory.settings import LdapSourceSettings
from app.directory.source import Answered, End, Found, Part, ReadRequest, Verdict
from tests.ldap import samba
from tests.ldap.asking import Answer, ask, of_samba, since
from tests.ldap.samba import BASE, Samba
from tests.worlds.tcp_proxy import tcp_proxy

pytestmark = [pytest.mark.external, pytest.mark.process, pytest.mark.xdist_group("ldap")]

WANTED = RequestedFields(
    {
        "users": frozenset({"objectGUID", "userAccountControl", "mail", "whenCreated", "accountExpires"}),
        "groups": frozenset({"cn", "objectSid"}),
    },
    members=frozenset({"groups"}),
)


class Writer:
    """An administrator of the domain."""

    def __init__(self, server: Samba) -> None:
        import ldap

        self._ldap = ldap
        self.connection = ldap.initialize(server.url)
        self.connection.set_option(ldap.OPT_REFERRALS, 0)
        self.connection.simple_bind_s(samba.ADMIN, samba.PASSWORD)

    def add_user(self, name: str, parent: str = "People", **attributes: str) -> str:
        dn = f"CN={name},OU={parent},{BASE}"
        given = {"objectClass": "user", "sAMAccountName": name, "userAccountControl": "546"} | attributes
        self.connection.add_s(dn, [(key, [value.encode()]) for key, value in given.items()])
        return dn

    def add_group(self, name: str, *members: str) -> str:
        dn = f"CN={name},OU=Groups,{BASE}"
        self.connection.add_s(
            dn,
            [
                ("objectClass", [b"group"]),
                ("sAMAccountName", [name.encode()]),
                *([("member", [one.encode() for one in members])] if members else []),
            ],
        )
        return dn

    def add_container(self, dn: str) -> None:
        self.connection.add_s(dn, [("objectClass", [b"organizationalUnit"])])

    def set(self, dn: str, name: str, value: str) -> None:
        self.connection.modify_s(dn, [(self._ldap.MOD_REPLACE, name, [value.encode()])])

    def put_into(self, group: str, member: str) -> None:
        self.connection.modify_s(group, [(self._ldap.MOD_ADD, "member", [member.encode()])])

    def delete(self, *dns: str) -> None:
        for dn in dns:
            self.connection.delete_s(dn)


def few_of(server: Samba, **settings: Any) -> LdapConnector:
    """A connector for a corner of the domain: to read all of it takes Samba seconds."""
    return of_samba(
        server, **({"sets": {"users": {"below": "OU=Elsewhere"}, "groups": {"below": "OU=Groups"}}} | settings)
    )


def by_cn(answer: Answer, name: str) -> Any:
    return next(one for one in answer.objects["groups"].values() if one.value["cn"] == name)


def test_everything_but_the_servers_own_objects_is_read(domain: Samba) -> None:
    answer = ask(of_samba(domain), wanted=WANTED)
    # Its own partitions are elsewhere, which is no loss.
    assert (answer.verdict, answer.reason) == ("complete", "")
    users = answer.objects["users"]
    assert len(users) == samba.PEOPLE + samba.SERVICES
    assert not any(name in place for place in users for name in ("krbtgt", "Administrator", "Guest"))
    one = users[f"CN=User 7,OU=People,{BASE}"]
    assert one.id.id == one.value["objectGUID"] == one.names[0]
    assert one.value["userAccountControl"] == 546
    assert "accountExpires" not in one.value
    assert str(one.value["whenCreated"]).endswith("Z")
    assert answer.cursor


def test_members_beyond_the_first_fifteen_hundred_are_members(domain: Samba) -> None:
    answer = ask(of_samba(domain), wanted=WANTED)
    of_people = {place: one.names[0] for place, one in answer.objects["users"].items()}
    large = by_cn(answer, "org-acme")
    assert set(large.members) == {of_people[f"CN=User {number},OU=People,{BASE}"] for number in range(1_600)}
    assert by_cn(answer, "inner").names[0] in by_cn(answer, "edit-acme").members


def test_the_size_of_pages_makes_no_difference_to_groups(domain: Samba) -> None:
    """Whose members, and people whose primary group they are, are asked for between the pages."""
    groups = RequestedFields({"groups": frozenset({"cn"})}, members=frozenset({"groups"}))
    whole = ask(of_samba(domain), wanted=groups)
    assert len(whole.objects["groups"]) > 30
    paged = ask(of_samba(domain, page_size=7, answer_timeout=20), wanted=groups)
    assert (paged.verdict, paged.ids()) == ("complete", whole.ids())


def test_members_by_primary_group_are_members(domain: Samba) -> None:
    answer = ask(of_samba(domain), wanted=WANTED)
    everybody = by_cn(answer, "Domain Users")
    assert str(everybody.value["objectSid"]).endswith("-513")
    assert {one.names[0] for one in answer.objects["users"].values()} <= set(everybody.members)


def test_changes_and_deletions_are_reported(domain: Samba) -> None:
    connector, writer = of_samba(domain), Writer(domain)
    leaver, mover = writer.add_user("leaver"), writer.add_user("mover")
    group = writer.add_group("changing", leaver)
    first = ask(connector, wanted=WANTED)
    ids = {place: one.id for objects in first.objects.values() for place, one in objects.items()}
    quiet = since(connector, first.cursor, WANTED)
    assert (quiet.verdict, quiet.objects, quiet.gone) == ("complete", {}, set())
    # All but the time of the read.
    assert quiet.cursor.partition('"at"')[0] == first.cursor.partition('"at"')[0] != first.cursor

    writer.set(mover, "userAccountControl", "544")
    writer.put_into(group, mover)
    writer.delete(leaver)
    comer = writer.add_user("comer")
    second = since(connector, first.cursor, WANTED)
    assert second.verdict == "complete"
    assert second.end is not None
    assert second.end.answered is Answered.CHANGES
    assert set(second.objects["users"]) == {mover, comer}
    assert second.objects["users"][mover].value["userAccountControl"] == 544
    assert ids[leaver] in second.gone
    assert ids[mover] not in second.gone
    assert ids[mover].id in second.objects["groups"][group].members
    # Nothing of that group has changed, and yet it has a member more.
    assert second.objects["users"][comer].id.id in by_cn(second, "Domain Users").members

    # Out of the base of its set, which is no part of the filter.
    writer.connection.rename_s(mover, "CN=mover", f"OU=Elsewhere,{BASE}")
    people = of_samba(domain, sets={"users": {"below": "OU=People"}})
    third = since(people, second.cursor, WANTED)
    assert ids[mover] in third.gone
    writer.delete(f"CN=mover,OU=Elsewhere,{BASE}", comer, group)


def test_a_rename_changes_no_membership(domain: Samba) -> None:
    """Groups name their members by an id that no rename changes, so the server reports no change of the group."""
    connector, writer = few_of(domain), Writer(domain)
    dn = writer.add_user("before", "Elsewhere")
    group = writer.add_group("of-before", dn)
    first = ask(connector, wanted=WANTED)
    writer.connection.rename_s(dn, "CN=after")
    second = since(connector, first.cursor, WANTED)
    renamed = second.objects["users"][f"CN=after,OU=Elsewhere,{BASE}"]
    assert renamed.id == first.objects["users"][dn].id
    assert renamed.names == first.objects["users"][dn].names
    assert renamed.names[0] in ask(connector, wanted=WANTED).objects["groups"][group].members
    writer.delete(f"CN=after,OU=Elsewhere,{BASE}", group)


@pytest.mark.parametrize("how", ["out of the set", "into the set", "into another set", "renamed"])
def test_a_container_that_was_moved_or_renamed_leads_to_a_full_read(domain: Samba, how: str) -> None:
    """The ``uSNChanged`` of the objects in it does not change."""
    writer, name = Writer(domain), how.replace(" ", "-")
    inside, outside = f"OU=Elsewhere,{BASE}", BASE
    writer.add_container(f"OU=Other,{BASE}")
    home = outside if how == "into the set" else inside
    # Two levels, so that the person's own parent is unchanged as well.
    writer.add_container(f"OU={name},{home}")
    writer.add_container(f"OU=Team,OU={name},{home}")
    person = writer.add_user("teammate", parent=f"Team,OU={name}" + (",OU=Elsewhere" if home == inside else ""))
    connector = few_of(
        domain,
        sets={
            "users": {"below": "OU=Elsewhere"},
            "others": {"base": f"OU=Other,{BASE}", "filter": "(objectClass=user)", "id": "objectGUID"},
        },
    )
    wanted = RequestedFields({"users": frozenset({"mail"}), "others": frozenset({"mail"})})
    first = ask(connector, wanted=wanted)
    assert since(connector, first.cursor, wanted).verdict == "complete"

    target = {"into the set": inside, "into another set": f"OU=Other,{BASE}", "renamed": inside}.get(how, outside)
    now = f"OU={name}-now,{target}" if how == "renamed" else f"OU={name},{target}"
    writer.connection.rename_s(f"OU={name},{home}", now.partition(",")[0], target)
    answer = since(connector, first.cursor, wanted)
    assert answer.end is not None
    assert answer.end.answered is Answered.CURSOR_REFUSED
    assert now in answer.reason
    whole = ask(connector, wanted=wanted)
    assert whole.verdict == "complete"
    found = {place for objects in whole.objects.values() for place in objects}
    assert (f"CN=teammate,OU=Team,{now}" in found) is (target != outside)
    # It is reported once.
    assert since(connector, whole.cursor, wanted).verdict == "complete"
    writer.delete(f"CN=teammate,OU=Team,{now}", f"OU=Team,{now}", now, f"OU=Other,{BASE}")
    assert person


def test_a_container_that_is_new_or_deleted_leads_to_no_full_read(domain: Samba) -> None:
    """Objects are created, moved and deleted in it one by one."""
    connector, writer = few_of(domain), Writer(domain)
    mover = writer.add_user("into-the-new")
    old = f"OU=Old,OU=Elsewhere,{BASE}"
    writer.add_container(old)
    leaver = writer.add_user("with-the-old", parent="Old,OU=Elsewhere")
    first = ask(connector, wanted=WANTED)
    gone = first.objects["users"][leaver].id
    new = f"OU=New,OU=Elsewhere,{BASE}"
    writer.add_container(new)
    writer.connection.rename_s(mover, "CN=into-the-new", new)
    writer.delete(leaver, old)
    second = since(connector, first.cursor, WANTED)
    assert (second.verdict, set(second.objects["users"])) == ("complete", {f"CN=into-the-new,{new}"})
    assert gone in second.gone
    # One with the same name is another one.
    writer.add_container(old)
    again = writer.add_user("with-the-old", parent="Old,OU=Elsewhere")
    third = since(connector, second.cursor, WANTED)
    assert (third.verdict, set(third.objects["users"])) == ("complete", {again})
    assert third.objects["users"][again].id != gone
    writer.delete(f"CN=into-the-new,{new}", again, new, old)


def test_sets_in_several_naming_contexts_have_no_changes(domain: Samba) -> None:
    """Changes are asked for in one."""
    elsewhere = {"base": f"CN=Sites,CN=Configuration,{BASE}", "filter": "(objectClass=site)", "id": "objectGUID"}
    connector = few_of(domain, sets={"groups": {"below": "OU=Groups"}, "sites": elsewhere})
    wanted = RequestedFields({"groups": frozenset({"cn"}), "sites": frozenset({"cn"})})
    answer = ask(connector, wanted=wanted)
    assert (answer.verdict, answer.cursor, len(answer.objects["sites"])) == ("complete", "", 1)
    assert "sets.sites" in answer.remarks[0].reason


def test_incremental_reads_need_the_right_to_see_deleted_objects(domain: Samba) -> None:
    connector = few_of(domain, bind_dn=samba.READER)
    answer = ask(connector, wanted=WANTED)
    assert (answer.verdict, answer.cursor) == ("complete", "")
    assert "Deleted Objects" in answer.remarks[0].reason
    first = ask(few_of(domain, bind_dn=samba.RIGHTFUL), wanted=WANTED)
    assert (first.cursor != "", first.remarks) == (True, [])
    refused = since(connector, first.cursor, WANTED)
    assert refused.end is not None
    assert refused.end.answered is Answered.CURSOR_REFUSED


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("of", "00" * 16),
        ("usn", 10**12),
        ("usn", -1),
        ("usn", "many"),
        ("newest", {}),
        ("newest", {"*": 1}),
        ("newest", ["x"]),
    ],
)
def test_a_cursor_is_of_one_domain_controller_and_its_past(domain: Samba, field: str, value: object) -> None:
    connector = few_of(domain)
    cursor = orjson.loads(ask(connector, wanted=RequestedFields({"groups": frozenset({"cn"})})).cursor)
    answer = since(connector, orjson.dumps(cursor | {field: value}).decode())
    assert (answer.objects, answer.gone) == ({}, set())
    assert answer.end is not None
    assert answer.end.answered is Answered.CURSOR_REFUSED


@pytest.mark.parametrize("written", ["little", "the same again", "much"])
def test_a_restored_domain_controller_with_new_changes_is_detected(domain: Samba, tmp_path: Path, written: str) -> None:
    """Its USNs have passed the remembered one by then, and its ``invocationId`` is the same."""
    connector, writer = few_of(domain), Writer(domain)
    person, other = writer.add_user("restored", "Elsewhere"), writer.add_user("other", "Elsewhere")
    group = writer.add_group("of-restored")
    quiet = ask(connector, wanted=WANTED)
    writer.connection.unbind_s()
    domain.stop()
    domain.save(tmp_path / "backup")
    domain.start()
    Writer(domain).put_into(group, person)
    changed = since(connector, quiet.cursor, WANTED)
    assert (changed.verdict, len(changed.objects["groups"][group].members)) == ("complete", 1)

    domain.stop()
    domain.restore(tmp_path / "backup")
    domain.start()
    behind = since(connector, changed.cursor, WANTED)
    writer = Writer(domain)
    # It takes the number of the lost change, so nothing is newer than the cursor.
    writer.set(other, "displayName", "Missed")
    if written == "the same again":
        writer.put_into(group, person)
    for number in range(30 if written == "much" else 0):
        writer.set(person, "displayName", f"Somebody {number}")
    writer.set(person, "displayName", "Somebody else")
    answer = since(connector, changed.cursor, WANTED)
    for one in (behind, answer):
        assert one.end is not None
        assert one.end.answered is Answered.CURSOR_REFUSED
    assert "was restored" in answer.reason
    again = ask(connector, wanted=WANTED)
    assert since(connector, again.cursor, WANTED).verdict == "complete"
    writer.delete(person, other, group)


def test_a_part_is_read_by_guid(domain: Samba) -> None:
    connector, writer = few_of(domain), Writer(domain)
    gone = writer.add_user("soon-gone", "Elsewhere")
    kept = writer.add_user("to-stay", "Elsewhere")
    first = ask(connector, wanted=WANTED)
    known = first.objects["users"][kept].id
    group = by_cn(first, "org-acme").id
    lost = first.objects["users"][gone].id
    writer.delete(gone)
    answer = ask(connector, ReadRequest(part=Part(objects=(known, group, lost))), WANTED)
    assert (answer.verdict, answer.gone) == ("complete", {lost})
    assert set(answer.objects["users"]) == {kept}
    assert len(by_cn(answer, "org-acme").members) == 1_600
    writer.delete(kept)


def test_a_cut_connection_is_never_a_complete_read(domain: Samba) -> None:
    """Not in the middle of a range either."""
    with tcp_proxy(domain.host, 389) as between:
        connector = few_of(domain, url=f"ldap://127.0.0.1:{between.port}")
        groups = RequestedFields({"groups": frozenset({"cn"})}, members=frozenset({"groups"}))
        assert ask(connector, wanted=groups).verdict == "complete"
        whole = between.passed
        for share in range(8):
            between.reset()
            between.cut_after = whole * share // 8
            answer = ask(connector, wanted=groups)
            assert (answer.verdict, answer.cursor) == ("failed", ""), f"cut after {share / 8:.0%}"
        for missing in (1, 10, 100):
            between.reset()
            between.cut_after = whole - missing
            assert ask(connector, wanted=groups).verdict == "failed"


def test_its_certificate_is_checked(domain: Samba) -> None:
    small = RequestedFields({"groups": frozenset({"cn"})})
    untrusted = ask(of_samba(domain, url=f"ldaps://{domain.host}"), wanted=small)
    assert untrusted.verdict == "failed"
    assert "is not trusted: " in untrusted.reason
    assert "set ca_file to a file with the certificate of the authority" in untrusted.reason
    assert domain.ca_file.is_file()
    # It is for DC1.acme.example, and this is an address.
    other = ask(of_samba(domain, url=f"ldaps://{domain.host}", ca_file=domain.ca_file), wanted=small)
    assert other.verdict == "failed"
    assert "is for another host; set url to the host that the certificate is for" in other.reason


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bind_password": "wrong"}, "the name or the password is wrong; correct bind_dn or bind_password"),
        ({"base": f"OU=Nowhere,{BASE}"}, f"base OU=Nowhere,{BASE}: does not exist"),
        ({"base": "DC=other,DC=example"}, "base DC=other,DC=example"),
        ({"sets": {"groups": {"below": "OU=Nowhere"}}}, "sets.groups.below OU=Nowhere"),
        ({"bind_dn": "", "bind_password": ""}, "it may require bind_dn"),
    ],
)
def test_errors_are_one_line_with_the_setting(domain: Samba, settings: dict[str, object], message: str) -> None:
    answer = ask(of_samba(domain, **settings), wanted=WANTED)
    assert answer.verdict == "failed"
    assert message in answer.reason


def test_a_disabled_account_is_refused_by_name(domain: Samba) -> None:
    answer = ask(of_samba(domain, bind_dn="user7@acme.example", bind_password="x"), wanted=WANTED)
    assert answer.verdict == "failed"
    assert "bind_dn user7@acme.example: " in answer.reason


def test_a_read_that_is_closed_stops_at_once(domain: Samba) -> None:
    reading = of_samba(domain, page_size=5).read(WANTED)
    next(reading)
    began = time.monotonic()
    reading.close()  # type: ignore[attr-defined]
    assert time.monotonic() - began < 1


def filetime(moment: datetime) -> str:
    return str((moment - datetime(1601, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 10)


@pytest.mark.parametrize("account_expiry", [True, False])
def test_memberships_end_when_the_account_expires(domain: Samba, *, account_expiry: bool) -> None:
    writer = Writer(domain)
    ends = datetime(2027, 1, 31, 18, tzinfo=UTC)
    limited = writer.add_user("limited", "Elsewhere", accountExpires=filetime(ends))
    lasting = writer.add_user("lasting", "Elsewhere", accountExpires="0")
    usual = writer.add_user("usual", "Elsewhere")
    group = writer.add_group("x-ending", limited, lasting, usual)
    source = source_from_settings(
        LdapSourceSettings.model_validate(
            {
                "type": "ldap",
                "url": domain.url,
                "base": f"OU=Elsewhere,{BASE}",
                "preset": "active_directory",
                "bind_dn": samba.ADMIN,
                "bind_password": samba.PASSWORD,
                "account_expiry": account_expiry,
                "sets": {"groups": {"base": f"OU=Groups,{BASE}", "filter": "(cn=x-ending)"}},
                "map": [
                    {"from": "users", "user": {"userId": "it.cn", "name": "it.cn", "email": "it.cn"}},
                    {
                        "from": "groups",
                        "each": "members",
                        "membership": {"organizationId": "it.cn", "userId": "member.userId"},
                    },
                    {
                        "from": "users",
                        "grant": {
                            "organizationId": '"x-ending"',
                            "documentId": '"d"',
                            "userId": "it.cn",
                            "accessRole": '"viewer"',
                        },
                    },
                ],
            }
        )
    )
    steps = list(source.read())
    end = steps[-1]
    assert isinstance(end, End)
    assert (end.verdict, end.reason) == (Verdict.COMPLETE, "")
    expected = {"limited": ends if account_expiry else None, "lasting": None, "usual": None}
    for kind in ("membership", "grant"):
        found: list[Any] = [step.record for step in steps if isinstance(step, Found) and step.record.kind == kind]
        assert {one.user_id: one.expires_at for one in found} == expected
    writer.delete(group, limited, lasting, usual)


def test_accounts_with_an_invisible_expiry_are_malformed(domain: Samba) -> None:
    """It would never end."""
    wanted = RequestedFields({"users": frozenset({"accountExpires"}), "groups": frozenset({"accountExpires"})})
    # A reader without rights sees no userAccountControl either; here it is a set of objects that have none.
    groups = {"users": {"below": "OU=Groups", "filter": "(cn=org-acme)"}, "groups": {"below": "OU=Groups"}}
    answer = ask(of_samba(domain, sets=groups), wanted=wanted)
    assert answer.verdict == "partial"
    assert [one.place for one in answer.malformed] == [f"CN=org-acme,OU=Groups,{BASE}"]
    assert "accountExpires is missing, which every account has" in answer.malformed[0].reason
    assert ask(of_samba(domain, sets=groups, account_expiry=False), wanted=wanted).verdict == "complete"


def test_the_example_makes_organizations_of_groups(domain: Samba) -> None:
    """Those who are in a group within the group, and those who are disabled, included."""
    text = Path("config/examples/active-directory.yaml").read_text("utf-8")
    given = yaml.safe_load(text)["directory"]["sources"][0] | {
        "url": domain.url,
        "base": BASE,
        "bind_dn": samba.ADMIN,
        "bind_password": samba.PASSWORD,
    }
    del given["bind_password_file"], given["ca_file"]
    found: dict[str, list[Any]] = {}
    steps = list(source_from_settings(LdapSourceSettings.model_validate(given)).read())
    for step in steps:
        if isinstance(step, Found):
            found.setdefault(step.record.kind, []).append(step.record)
    end = steps[-1]
    assert isinstance(end, End)
    assert (end.verdict, end.reason) == (Verdict.COMPLETE, "")
    assert [one.organization_id for one in found["organization"]] == ["acme"]
    users = {one.user_id: one for one in found["user"]}
    assert len(users) == samba.PEOPLE
    assert sum(one.disabled for one in users.values()) == samba.PEOPLE // 50
    roles: dict[str, list[str]] = {"viewer": [], "editor": []}
    for one in found["membership"]:
        roles[one.access_role].append(users[one.user_id].name)
    assert sorted(roles["editor"]) == ["User 1", "User 1700", "User 1701", "User 1702", "User 2"]
    assert len(roles["viewer"]) == samba.IN_THE_LARGE_GROUP
