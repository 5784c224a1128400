"""OpenLDAP: full and incremental reads, and errors."""

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from app.commands.doctor.finding import State
from app.commands.doctor.sources import check_sources
from app.directory.configured import source_from_settings
from app.directory.connector import ALL_ATTRIBUTES, DirectoryObject, RequestedFields
from app.directory.settings import LdapSourceSettings
from app.directory.source import Answered, ObjectId, Part, ReadRequest
from app.directory.source_settings import GuardSettings
from app.foundation.clock import utc_now
from tests.ldap import slapd
from tests.ldap.asking import Answer, ask, of_slapd, since, take
from tests.ldap.slapd import SUFFIX, Slapd, person_dn
from tests.worlds.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = [pytest.mark.external, pytest.mark.process, pytest.mark.xdist_group("ldap")]


class Writer:
    """Somebody who changes what a server holds."""

    def __init__(self, server: Slapd) -> None:
        import ldap

        self._connection = ldap.initialize(server.url)
        self._connection.simple_bind_s(slapd.ADMIN, slapd.PASSWORD)
        self._replace, self._add, self._delete = ldap.MOD_REPLACE, ldap.MOD_ADD, ldap.MOD_DELETE

    def set(self, dn: str, **attributes: str) -> None:
        self._connection.modify_s(dn, [(self._replace, name, [value.encode()]) for name, value in attributes.items()])

    def put_into(self, group: str, *members: str) -> None:
        self._connection.modify_s(
            f"cn={group},ou=groups,{SUFFIX}", [(self._add, "member", [one.encode() for one in members])]
        )

    def take_from(self, group: str, *members: str) -> None:
        self._connection.modify_s(
            f"cn={group},ou=groups,{SUFFIX}", [(self._delete, "member", [one.encode() for one in members])]
        )

    def delete(self, dn: str) -> None:
        self._connection.delete_s(dn)

    def rename(self, dn: str, rdn: str, parent: str | None = None) -> None:
        self._connection.rename_s(dn, rdn, parent)

    def add(self, dn: str, **attributes: str | list[str]) -> None:
        self._connection.add_s(
            dn,
            [
                (name, [one.encode() for one in ([values] if isinstance(values, str) else values)])
                for name, values in attributes.items()
            ],
        )

    def add_person(self, number: int, **attributes: str) -> None:
        given = {"objectClass": "inetOrgPerson", "uid": f"u{number}", "cn": f"Person {number}", "sn": f"{number}"}
        self.add(person_dn(number), **(given | {"displayName": f"Person {number}"} | attributes))


def members(answer: Answer, name: str) -> set[str]:
    return set(answer.objects["groups"][f"cn={name},ou=groups,{SUFFIX}"].members)


def test_everything_is_read_page_by_page(standing_slapd: Slapd) -> None:
    answer = ask(of_slapd(standing_slapd.port))
    assert answer.verdict == "complete"
    assert len(answer.objects["users"]) == 1_300
    assert len(answer.objects["groups"]) == 41
    one = answer.objects["users"][person_dn(7)]
    assert one.value == {"displayName": "Person 7", "mail": "u7@acme.example", "dn": person_dn(7)}
    assert len(one.id.id) == 36
    assert one.names == (person_dn(7),)
    everybody = members(answer, "everybody")
    assert len(everybody) == 1_300
    assert everybody == {name for user in answer.objects["users"].values() for name in user.names}
    # Spelt otherwise in the group: CN=Group4,  ou=groups,…
    assert f"cn=group4,ou=groups,{SUFFIX}" in members(answer, "group5")
    assert answer.cursor


def test_the_size_of_pages_makes_no_difference(standing_slapd: Slapd) -> None:
    large = ask(of_slapd(standing_slapd.port)).ids()
    assert ask(of_slapd(standing_slapd.port, page_size=83)).ids() == large


def test_only_attributes_of_rules_are_requested(standing_slapd: Slapd) -> None:
    wanted = RequestedFields({"groups": frozenset({"CN", "description"})})
    answer = ask(of_slapd(standing_slapd.port), wanted=wanted)
    assert set(answer.objects) == {"groups"}
    group = answer.objects["groups"][f"cn=everybody,ou=groups,{SUFFIX}"]
    assert group.value == {"CN": "everybody"}
    assert group.members == ()


def test_all_attributes_are_read_on_request(standing_slapd: Slapd) -> None:
    wanted = RequestedFields({"users": frozenset({ALL_ATTRIBUTES})})
    user = ask(of_slapd(standing_slapd.port, base=f"ou=people,{SUFFIX}"), wanted=wanted).objects["users"][person_dn(9)]
    assert user.value["departmentNumber"] == "d2"
    assert user.value["objectClass"] == ["inetOrgPerson"]
    assert "userPassword" not in user.value


def test_a_cut_connection_is_never_a_complete_read(meddled: TcpProxy) -> None:
    connector = of_slapd(meddled.port, connect_timeout=5, answer_timeout=5, page_size=500)
    assert ask(connector).verdict == "complete"
    whole = meddled.passed
    for share in range(16):
        meddled.reset()
        meddled.cut_after = whole * share // 16
        answer = ask(connector)
        assert answer.verdict == "failed", f"cut after {share / 16:.0%}"
        assert answer.cursor == ""
    # Also without the very last bytes, which belong to the response that ends the search.
    for missing in (1, 5, 20, 50):
        meddled.reset()
        meddled.cut_after = whole - missing
        assert ask(connector).verdict == "failed", f"{missing} bytes were missing"
    meddled.reset()
    assert ask(connector).verdict == "complete"


def test_a_silent_server_fails_the_read(meddled: TcpProxy) -> None:
    connector = of_slapd(meddled.port, connect_timeout=1, answer_timeout=0.5)
    for after in (0, 3_000, 200_000):
        meddled.reset()
        meddled.stall_after = after
        began = time.monotonic()
        answer = ask(connector)
        assert answer.verdict == "failed"
        assert time.monotonic() - began < 8
        assert "answer" in answer.reason


def test_a_server_that_is_killed_in_the_middle_leaves_no_complete_read(own_slapd: Slapd) -> None:
    # A page has one object, so that there is a middle.
    reading = of_slapd(own_slapd.port, page_size=1, answer_timeout=5).read(slapd_wanted())
    first = [next(reading) for _ in range(5)]
    own_slapd.stop(signal.SIGKILL)
    answer = take([*first, *reading])
    assert answer.verdict == "failed"
    assert "lost" in answer.reason or "cannot" in answer.reason
    own_slapd.start()
    assert ask(of_slapd(own_slapd.port)).verdict == "complete"


@pytest.fixture
def two_slapds(own_slapd: Slapd, tmp_path: Path) -> Iterator[list[Slapd]]:
    """Two servers with the same content."""
    with slapd.running(slapd.Slapd(tmp_path / "second", slapd.company(60, 6, in_group=9))) as second:
        yield [own_slapd, second]


def test_the_first_server_that_can_be_reached_is_read(two_slapds: list[Slapd]) -> None:
    first, second = two_slapds
    connector = of_slapd(first.port, url=[first.url, second.url], connect_timeout=2)
    before = ask(connector)
    assert (before.verdict, before.remarks) == ("complete", [])
    Writer(first).set(person_dn(1), mail="first@acme.example")
    Writer(second).set(person_dn(1), mail="second@acme.example")
    first.stop()
    # A cursor belongs to one server.
    refused = since(connector, before.cursor)
    assert refused.end is not None
    assert refused.end.answered is Answered.CURSOR_REFUSED
    instead = ask(connector)
    assert instead.verdict == "complete"
    assert instead.objects["users"][person_dn(1)].value["mail"] == "second@acme.example"
    assert instead.remarks[0].reason.startswith(f"server away: nothing listens at 127.0.0.1:{first.port}")
    assert since(connector, instead.cursor).verdict == "complete"
    second.stop()
    away = ask(connector)
    assert away.verdict == "failed"
    assert f":{first.port}" in away.reason
    assert f":{second.port}" in away.reason
    first.start()
    back = since(connector, instead.cursor)
    assert back.end is not None
    assert back.end.answered is Answered.CURSOR_REFUSED
    assert ask(connector).objects["users"][person_dn(1)].value["mail"] == "first@acme.example"


def test_the_doctor_reports_a_server_that_is_away(two_slapds: list[Slapd]) -> None:
    first, second = two_slapds
    first.stop()
    settings = {
        "type": "ldap",
        "name": "people",
        "url": [first.url, second.url],
        "base": SUFFIX,
        "preset": "openldap",
        "map": [{"from": "users", "user": {"userId": "it.uid", "name": "it.cn", "email": "it.mail"}}],
    }
    source = source_from_settings(LdapSourceSettings.model_validate(settings))
    [away, read] = check_sources([source], {}, GuardSettings(), utc_now)
    assert (away.state, read.state) == (State.WARNING, State.OK)
    assert f"people: server away: nothing listens at 127.0.0.1:{first.port}" in away.message
    assert "60 records" in read.message


def test_a_read_never_mixes_two_servers(two_slapds: list[Slapd]) -> None:
    first, second = two_slapds
    connector = of_slapd(first.port, url=[first.url, second.url], page_size=1, answer_timeout=5)
    reading = connector.read(slapd_wanted())
    some = [next(reading) for _ in range(5)]
    first.stop(signal.SIGKILL)
    answer = take([*some, *reading])
    assert (answer.verdict, answer.cursor) == ("failed", "")
    assert first.url in answer.reason
    assert len(answer.objects["users"]) < 60
    whole = ask(connector)
    assert (whole.verdict, len(whole.objects["users"])) == ("complete", 60)


def test_a_server_that_stalls_in_the_middle_is_tried_last(two_slapds: list[Slapd]) -> None:
    first, second = two_slapds
    with tcp_proxy("127.0.0.1", first.port) as between:
        urls = [f"ldap://127.0.0.1:{between.port}", second.url]
        connector = of_slapd(between.port, url=urls, connect_timeout=2, answer_timeout=0.5)
        between.stall_after = 5_000
        assert ask(connector).verdict == "failed"
        # It still accepts connections.
        instead = ask(connector)
        assert (instead.verdict, instead.remarks) == ("complete", [])
        between.reset()
        assert ask(connector).verdict == "complete"
        assert between.passed > 5_000


def test_a_refused_login_is_not_tried_at_other_servers(two_slapds: list[Slapd]) -> None:
    """Each try counts towards the lockout of the account."""
    first, second = two_slapds
    with tcp_proxy("127.0.0.1", second.port) as between:
        urls = [first.url, f"ldap://127.0.0.1:{between.port}"]
        answer = ask(of_slapd(first.port, url=urls, bind_password="wrong"))
        assert answer.end is not None
        assert answer.end.login_refused
        assert between.passed == 0


def slapd_wanted() -> RequestedFields:
    return RequestedFields({"users": frozenset({"mail"}), "groups": frozenset({"cn"})}, members=frozenset({"groups"}))


def test_a_read_that_is_closed_ends_its_search_and_connection(standing_slapd: Slapd) -> None:
    with tcp_proxy("127.0.0.1", standing_slapd.port) as between:
        ended = threading.Event()
        reading = of_slapd(between.port, page_size=10).read(slapd_wanted())
        assert isinstance(next(reading), DirectoryObject)
        between.reset()
        between.delay = ended.set
        began = time.monotonic()
        reading.close()  # type: ignore[attr-defined]
        assert time.monotonic() - began < 1
        # Hardly more than the page that was in transit has been sent.
        time.sleep(0.2)
        assert between.passed < 20_000


def test_a_size_limit_fails_the_read(standing_slapd: Slapd) -> None:
    answer = ask(of_slapd(standing_slapd.port, bind_dn=slapd.LIMITED))
    assert answer.verdict == "failed"
    assert "size limit" in answer.reason
    assert slapd.LIMITED in answer.reason


def test_a_reader_without_rights_fails_the_read(standing_slapd: Slapd) -> None:
    """To a reader without rights, the server reports a missing base instead of an empty one."""
    answer = ask(of_slapd(standing_slapd.port, bind_dn=f"cn=blind,ou=services,{SUFFIX}"))
    assert answer.verdict == "failed"
    assert "base dc=acme,dc=example: does not exist" in answer.reason


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bind_password": "wrong"}, "login refused: bind_dn cn=reader"),
        ({"bind_password": "wrong"}, "the name or the password is wrong; correct bind_dn or bind_password"),
        (
            {"bind_dn": "cn=nobody,dc=acme,dc=example"},
            "the name or the password is wrong; correct bind_dn or bind_password",
        ),
        ({"bind_dn": "nobody"}, "bind_dn nobody: is no DN; correct it"),
        ({"base": "ou=nowhere,dc=acme,dc=example"}, "base ou=nowhere,dc=acme,dc=example: does not exist"),
        ({"base": "dc=other,dc=example"}, "base dc=other,dc=example"),
        ({"base": "=,="}, "is no DN; it has the form"),
        ({"sets": {"users": {"base": "ou=nowhere,dc=acme,dc=example"}}}, "sets.users.base ou=nowhere"),
        ({"sets": {"users": {"below": "ou=nowhere"}}}, "sets.users.below ou=nowhere, relative to base dc=acme"),
        ({"sets": {"users": {"filter": "(&(x)(y))"}}}, "sets.users.filter: is no LDAP filter; it has the form"),
        (
            {"url": "ldap://127.0.0.1:1"},
            "nothing listens at 127.0.0.1:1 (connection refused); see that it runs and that url names its port",
        ),
        ({"url": "ldaps://no-such-host.invalid"}, "the name no-such-host.invalid cannot be resolved"),
        ({"url": "ldapi://%2Ftmp%2Fno-such-socket"}, "no server listens at this socket"),
        ({"ca_file": "/no/such.pem"}, "ca_file /no/such.pem: No such file or directory"),
        ({"starttls": True}, "starttls: the server refuses"),
    ],
)
def test_errors_are_one_line_with_the_setting(standing_slapd: Slapd, settings: dict[str, object], message: str) -> None:
    answer = ask(of_slapd(standing_slapd.port, **settings))
    assert answer.verdict == "failed"
    assert message in answer.reason


def test_a_missing_set_fails_the_read(standing_slapd: Slapd) -> None:
    answer = ask(of_slapd(standing_slapd.port), wanted=RequestedFields({"people": frozenset({"cn"})}))
    assert answer.verdict == "failed"
    assert "sets.people: does not exist, but rules read it; there are users, groups" in answer.reason


def test_referrals_make_the_read_partial(own_slapd: Slapd) -> None:
    Writer(own_slapd).add(
        f"ou=abroad,ou=elsewhere,{SUFFIX}",
        objectClass=["referral", "extensibleObject"],
        ou="abroad",
        ref=f"ldap://other.example/ou=abroad,{SUFFIX}",
    )
    answer = ask(of_slapd(own_slapd.port))
    assert answer.verdict == "partial"
    assert f"ldap://other.example/ou=abroad,{SUFFIX}" in answer.reason
    assert len(answer.objects["users"]) == 60
    assert answer.cursor == ""
    assert ask(of_slapd(own_slapd.port, elsewhere=[f"OU=abroad, {SUFFIX}"])).verdict == "complete"


def test_an_incremental_read_yields_exactly_the_changes(own_slapd: Slapd) -> None:
    connector, writer = of_slapd(own_slapd.port), Writer(own_slapd)
    first = ask(connector)
    quiet = since(connector, first.cursor)
    assert (quiet.verdict, quiet.objects, quiet.gone) == ("complete", {}, set())
    assert quiet.end is not None
    assert quiet.end.answered is Answered.CHANGES
    ids = {place: one.id for objects in first.objects.values() for place, one in objects.items()}

    writer.set(person_dn(1), mail="new@acme.example")
    writer.rename(person_dn(2), "uid=u2b")
    writer.delete(person_dn(3))
    writer.add_person(100)
    writer.put_into("group1", person_dn(59))
    second = since(connector, quiet.cursor)
    assert second.verdict == "complete"
    assert set(second.objects["users"]) == {person_dn(1), f"uid=u2b,ou=people,{SUFFIX}", person_dn(100)}
    assert second.objects["users"][person_dn(1)].value["mail"] == "new@acme.example"
    assert second.objects["users"][f"uid=u2b,ou=people,{SUFFIX}"].id == ids[person_dn(2)]
    assert set(second.objects["groups"]) == {f"cn=group1,ou=groups,{SUFFIX}"}
    assert person_dn(59) in members(second, "group1")
    assert ("users", ids[person_dn(3)].id) in second.gone
    assert not second.gone & {("users", ids[person_dn(number)].id) for number in range(60) if number != 3}

    # Out of the base of its set, and out of its filter.
    writer.take_from("group1", person_dn(59))
    third = since(of_slapd(own_slapd.port, sets={"users": {"filter": "(mail=u*)"}}), second.cursor)
    writer.set(person_dn(4), mail="other@acme.example")
    fourth = since(of_slapd(own_slapd.port, sets={"users": {"filter": "(mail=u*)"}}), third.cursor)
    assert ("users", ids[person_dn(4)].id) in fourth.gone
    assert fourth.objects == {}
    people = of_slapd(own_slapd.port, sets={"users": {"below": "ou=people"}})
    writer.rename(person_dn(5), "uid=u5", f"ou=elsewhere,{SUFFIX}")
    assert ("users", ids[person_dn(5)].id) in since(people, fourth.cursor).gone


def test_a_full_read_equals_an_earlier_one_and_its_changes(own_slapd: Slapd) -> None:
    connector, writer = of_slapd(own_slapd.port), Writer(own_slapd)
    first = ask(connector)
    known, cursor = first.ids(), first.cursor
    for step in range(8):
        writer.set(person_dn(step), displayName=f"Renamed {step}")
        writer.delete(person_dn(20 + step))
        writer.add_person(200 + step)
        writer.put_into(f"group{step % 6}", person_dn(200 + step))
        changes = since(connector, cursor)
        assert changes.verdict == "complete"
        known = {key: value for key, value in known.items() if key not in changes.gone} | changes.ids()
        cursor = changes.cursor
        assert known == ask(connector).ids()


def test_more_changes_than_the_log_holds_lead_to_a_full_read(own_slapd: Slapd) -> None:
    connector, writer = of_slapd(own_slapd.port), Writer(own_slapd)
    cursor = ask(connector).cursor
    for number in range(slapd.LOG + 20):
        writer.set(person_dn(number % 50), displayName=f"Changed {number}")
    writer.delete(person_dn(55))
    answer = since(connector, cursor)
    assert (answer.verdict, answer.objects, answer.gone) == ("failed", {}, set())
    assert answer.end is not None
    assert answer.end.answered is Answered.CURSOR_REFUSED
    assert "syncprov-sessionlog" in answer.reason


@pytest.mark.parametrize(
    "cursor",
    [
        {"csn": ["20991231235959.000000Z#000000#000#000000"]},
        {"csn": []},
        {"csn": "20991231235959.000000Z#000000#000#000000"},
        {"csn": ["20991231235959.000000Z#000000#000#000000,rid=1"]},
        {"csn": ["20251231235959.000000Z#000000#000#000000"], "newest": {}},
        {"csn": ["20251231235959.000000Z#000000#000#000000"], "newest": {"*": "20251231235959Z#000000#000#000000"}},
        "[]",
        "\x00",
    ],
)
def test_a_cursor_of_another_time_or_place_is_refused(standing_slapd: Slapd, cursor: dict[str, object] | str) -> None:
    """A server that was restored is behind what is known of it: nothing of that is gone for it."""
    connector = of_slapd(standing_slapd.port)
    if isinstance(cursor, dict):
        cursor = orjson.dumps(orjson.loads(ask(connector).cursor) | cursor).decode()
    answer = since(connector, cursor)
    assert (answer.verdict, answer.objects, answer.gone) == ("failed", {}, set())
    assert answer.end is not None
    assert answer.end.answered is Answered.CURSOR_REFUSED


@pytest.mark.parametrize("lost", ["a member added", "an entry added"])
def test_a_restored_server_with_new_changes_is_detected(own_slapd: Slapd, lost: str) -> None:
    """Its ``contextCSN`` has passed the remembered one by then."""
    connector, writer = of_slapd(own_slapd.port), Writer(own_slapd)
    writer.set(person_dn(9), mail="kept@acme.example")
    first = ask(connector)
    backup = own_slapd.saved()
    if lost == "an entry added":
        writer.add_person(100)
    else:
        writer.put_into("group1", person_dn(50))
    changed = since(connector, first.cursor)
    assert changed.verdict == "complete"
    own_slapd.stop()
    own_slapd.restore(backup)
    own_slapd.start()
    behind = since(connector, changed.cursor)
    Writer(own_slapd).set(person_dn(1), mail="after@acme.example")
    answer = since(connector, changed.cursor)
    for one in (behind, answer):
        assert one.end is not None
        assert one.end.answered is Answered.CURSOR_REFUSED
    assert "was restored" in answer.reason
    whole = ask(connector)
    assert since(connector, whole.cursor).verdict == "complete"
    assert person_dn(50) not in members(whole, "group1")


def test_a_restarted_server_needs_no_full_read(own_slapd: Slapd) -> None:
    """Entries that changed last and are deleted now are no sign of a restored server."""
    connector, writer = of_slapd(own_slapd.port), Writer(own_slapd)
    writer.add_person(100)
    first = ask(connector)
    own_slapd.stop()
    own_slapd.start()
    writer = Writer(own_slapd)
    writer.delete(person_dn(100))
    second = since(connector, first.cursor)
    assert (second.verdict, len(second.gone)) == ("complete", 2)
    writer.set(person_dn(1), mail="other@acme.example")
    third = since(connector, second.cursor)
    assert (third.verdict, set(third.objects["users"])) == ("complete", {person_dn(1)})


def test_a_renamed_container_leads_to_a_full_read(own_slapd: Slapd) -> None:
    """The entries in it have other DNs, which the server does not report as changes."""
    connector = of_slapd(own_slapd.port)
    cursor = ask(connector).cursor
    writer = Writer(own_slapd)
    writer.add(f"ou=branch,{SUFFIX}", objectClass="organizationalUnit", ou="branch")
    added = since(connector, cursor)
    assert added.verdict == "complete"
    writer.rename(f"ou=elsewhere,{SUFFIX}", "ou=abroad")
    answer = since(connector, added.cursor)
    assert answer.end is not None
    assert answer.end.answered is Answered.CURSOR_REFUSED


@pytest.mark.parametrize("settings", [{"base": f"ou=people,{SUFFIX}"}, {"sets": {"users": {"below": "ou=people"}}}])
def test_a_container_that_was_moved_out_of_the_base_leads_to_a_full_read(
    own_slapd: Slapd, settings: dict[str, object]
) -> None:
    writer = Writer(own_slapd)
    writer.add(f"ou=team,ou=people,{SUFFIX}", objectClass="organizationalUnit", ou="team")
    writer.add(f"uid=t,ou=team,ou=people,{SUFFIX}", objectClass="inetOrgPerson", uid="t", cn="T", sn="T")
    connector, users = of_slapd(own_slapd.port, **settings), RequestedFields({"users": frozenset({"mail"})})
    first = ask(connector, wanted=users)
    assert len(first.objects["users"]) == 61
    writer.rename(f"ou=team,ou=people,{SUFFIX}", "ou=team", f"ou=elsewhere,{SUFFIX}")
    answer = since(connector, first.cursor, users)
    assert answer.end is not None
    assert answer.end.answered is Answered.CURSOR_REFUSED
    assert len(ask(connector, wanted=users).objects["users"]) == 60


def test_without_a_log_there_are_no_changes(library: None, tmp_path: Path) -> None:
    server = slapd.Slapd(tmp_path / "s", slapd.company(20, 1), log=0)
    with slapd.running(server):
        connector = of_slapd(server.port)
        cursor = ask(connector).cursor
        assert since(connector, cursor).verdict == "complete"
        Writer(server).set(person_dn(1), mail="new@acme.example")
        answer = since(connector, cursor)
        assert answer.end is not None
        assert answer.end.answered is Answered.CURSOR_REFUSED


def test_unreported_attributes_prevent_incremental_reads(standing_slapd: Slapd) -> None:
    by_rule = ask(of_slapd(standing_slapd.port), wanted=RequestedFields({"users": frozenset({"memberOf"})}))
    assert (by_rule.verdict, by_rule.cursor) == ("complete", "")
    assert "rules of users use memberOf" in by_rule.remarks[0].reason
    filtered = of_slapd(standing_slapd.port, sets={"users": {"filter": "(&(uid=*)(memberOf=cn=x,dc=y))"}})
    assert "sets.users.filter uses memberOf" in ask(filtered).remarks[0].reason


def test_a_part_is_read_by_ids_and_by_an_attribute(own_slapd: Slapd) -> None:
    connector = of_slapd(own_slapd.port)
    first = ask(connector)
    known = [first.objects["users"][person_dn(number)].id for number in (1, 2, 3)]
    group = first.objects["groups"][f"cn=group2,ou=groups,{SUFFIX}"].id
    writer = Writer(own_slapd)
    writer.delete(person_dn(2))
    writer.add_person(300, mail="*")
    writer.add_person(301, mail="a)(uid=*")
    wanted = RequestedFields(WANTED_ATTRIBUTES, members=frozenset({"groups"}), user_ids={"users": "mail"})
    part = Part(user_ids=("*", "a)(uid=*", "u5@acme.example", "nobody"), objects=(*known, group))
    by_alias = replace(wanted, user_ids={}, user_aliases={"users": "mail"})
    answer = ask(connector, ReadRequest(part=Part(user_ids=("5",), aliases=("U5@acme.example",))), by_alias)
    assert set(answer.objects["users"]) == {person_dn(5)}
    answer = ask(connector, ReadRequest(part=part), wanted)
    assert answer.verdict == "complete"
    assert answer.end is not None
    assert answer.end.answered is Answered.PART
    assert set(answer.objects["users"]) == {person_dn(number) for number in (1, 3, 5, 300, 301)}
    assert len(members(answer, "group2")) == 9
    assert answer.gone == {known[1]}
    unknown = Part(objects=(ObjectId("users", "*"), ObjectId("users", "no uuid"), ObjectId("elsewhere", "1")))
    assert ask(connector, ReadRequest(part=unknown)).objects == {}


WANTED_ATTRIBUTES = {"users": frozenset({"mail"}), "groups": frozenset({"cn"})}


def test_the_first_of_several_values_is_used_with_a_remark(own_slapd: Slapd) -> None:
    many: dict[str, str | list[str]] = {
        "objectClass": "inetOrgPerson",
        "uid": "many",
        "cn": "Many",
        "sn": "Many",
        "displayName": "Many",
        "mail": ["first@acme.example", "second@acme.example"],
        "cn;lang-de": "Viele",
    }
    Writer(own_slapd).add(f"uid=many,ou=people,{SUFFIX}", **many)
    one = ask(of_slapd(own_slapd.port))
    assert one.objects["users"][f"uid=many,ou=people,{SUFFIX}"].value["mail"] == "first@acme.example"
    assert [remark.place for remark in one.remarks] == [f"uid=many,ou=people,{SUFFIX}"]
    assert "lists: [mail]" in one.remarks[0].reason
    listed = ask(of_slapd(own_slapd.port, lists=["MAIL"]))
    assert listed.objects["users"][f"uid=many,ou=people,{SUFFIX}"].value["mail"] == [
        "first@acme.example",
        "second@acme.example",
    ]
    assert listed.remarks == []


def test_binary_values_are_converted_or_malformed(own_slapd: Slapd) -> None:
    import ldap

    connection = ldap.initialize(own_slapd.url)
    connection.simple_bind_s(slapd.ADMIN, slapd.PASSWORD)
    photo = b"\xff\xd8\xff\xe0"
    connection.modify_s(person_dn(1), [(ldap.MOD_ADD, "jpegPhoto", [photo]), (ldap.MOD_ADD, "audio", [photo])])
    wanted = RequestedFields({"users": frozenset({"jpegPhoto", "createTimestamp"})})
    user = ask(of_slapd(own_slapd.port), wanted=wanted).objects["users"][person_dn(1)]
    assert user.value["jpegPhoto"] == "/9j/4A=="
    assert str(user.value["createTimestamp"]).endswith("Z")
    assert "T" in str(user.value["createTimestamp"])
    spoilt = ask(of_slapd(own_slapd.port), wanted=RequestedFields({"users": frozenset({"audio"})}))
    assert spoilt.verdict == "partial"
    assert [one.place for one in spoilt.malformed] == [person_dn(1)]
    assert "audio is not text" in spoilt.malformed[0].reason
    repaired = ask(
        of_slapd(own_slapd.port, convert={"audio": "base64"}), wanted=RequestedFields({"users": frozenset({"audio"})})
    )
    assert repaired.verdict == "complete"


def test_posix_groups_name_their_members_by_uid(own_slapd: Slapd) -> None:
    writer = Writer(own_slapd)
    for number in (1, 2):
        writer.add(
            f"uid=p{number},ou=elsewhere,{SUFFIX}",
            objectClass=["account", "posixAccount"],
            uid=f"p{number}",
            cn=f"Posix {number}",
            uidNumber=str(number),
            gidNumber="7",
            homeDirectory="/",
        )
    writer.add(
        f"cn=staff,ou=elsewhere,{SUFFIX}", objectClass="posixGroup", cn="staff", gidNumber="7", memberUid=["p1", "p2"]
    )
    wanted = RequestedFields(
        {"users": frozenset({"uidNumber"}), "groups": frozenset({"gidNumber"})}, members=frozenset({"groups"})
    )
    answer = ask(of_slapd(own_slapd.port, preset="posix"), wanted=wanted)
    assert answer.verdict == "complete"
    assert {name for one in answer.objects["users"].values() for name in one.names} == {"p1", "p2"}
    staff = answer.objects["groups"][f"cn=staff,ou=elsewhere,{SUFFIX}"]
    assert (staff.members, staff.value) == (("p1", "p2"), {"gidNumber": 7})


def test_an_object_without_an_id_is_malformed(own_slapd: Slapd) -> None:
    answer = ask(of_slapd(own_slapd.port, sets={"users": {"id": "employeeNumber"}}))
    assert answer.verdict == "partial"
    assert len(answer.malformed) == 60
    assert "has no employeeNumber" in answer.malformed[0].reason
