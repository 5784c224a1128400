"""Active Directory accounts that expire lose the access that they have through groups with the next read."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from app.access.decision.decide import DecisionPolicy, PlainQuestion, decide
from app.access.sql_view import opened_sql_view
from app.commands.schema import METADATA
from app.directory.configured import sources_from_settings
from app.directory.connector import RequestedFields
from app.directory.connectors.ldap.connector import LdapConnector
from app.directory.connectors.ldap.settings import LdapConnectionSettings
from app.directory.settings import DirectorySettings
from app.directory.source import Answered
from app.foundation.database.engine import open_engine
from app.sync.runs.directory_reads import read_directory
from tests.ldap import samba
from tests.ldap.asking import ask, since
from tests.ldap.samba import BASE, Samba
from tests.ldap.test_active_directory import Writer, filetime

pytestmark = [pytest.mark.external, pytest.mark.process, pytest.mark.xdist_group("ldap")]

START = datetime(2026, 11, 1, 12, tzinfo=UTC)
ENDS = START + timedelta(minutes=10, microseconds=1)
WANTED = RequestedFields({"users": frozenset({"cn", "account_expired"}), "groups": frozenset({"cn"})})

OF_THE_GROUP = {"organizationId": '"acme"', "organizationUserGroupId": '"eng"'}
RULES = [
    {"from": "users", "user": {"userId": "it.cn", "name": "it.cn", "email": "it.cn"}},
    {"from": "groups", "organization": {"organizationId": '"acme"', "organizationName": "it.cn"}},
    {"from": "groups", "group": {**OF_THE_GROUP, "groupName": "it.cn"}},
    {"from": "groups", "each": "members", "groupMember": {**OF_THE_GROUP, "userId": "member.userId"}},
    {
        "from": "groups",
        "document": {
            "organizationId": '"acme"',
            "documentId": '"plans"',
            "documentName": "it.cn",
            "accessType": '"restricted"',
        },
    },
    {
        "from": "groups",
        "document": {
            "organizationId": '"acme"',
            "documentId": '"news"',
            "documentName": "it.cn",
            "accessType": '"public"',
        },
    },
    {"from": "groups", "grant": {**OF_THE_GROUP, "documentId": '"plans"', "accessRole": '"viewer"'}},
]
"""The group has a grant; there are no memberships."""


class Installation:
    """An Usher that reads a corner of the domain, and whose clock is set by the test."""

    def __init__(self, server: Samba, folder: Path, *, account_expiry: bool = True) -> None:
        self.engine = open_engine(f"sqlite:///{folder}/usher.db")
        METADATA.create_all(self.engine)
        given = {
            "type": "ldap",
            "name": "ad",
            "url": server.url,
            "base": f"OU=Elsewhere,{BASE}",
            "preset": "active_directory",
            "bind_dn": samba.RIGHTFUL,
            "bind_password": samba.PASSWORD,
            "account_expiry": account_expiry,
            "full_every": 366 * 24 * 3600,
            "sets": {"groups": {"base": f"OU=Groups,{BASE}", "filter": "(cn=x-eng)"}},
            "map": RULES,
        }
        settings = DirectorySettings.model_validate({"sources": [given]})
        self.now = START
        self.sources = sources_from_settings(settings, spool=folder / "spool", clock=lambda: self.now)

    def read_at(self, moment: datetime) -> str:
        """Reads the directory; what the source answered: ``changes``, or "" after a full read."""
        self.now = moment
        [read] = read_directory(self.engine, self.sources, clock=lambda: self.now).sources
        assert (read.verdict, read.reason) == ("complete", "")
        return str(read.answered)

    def allowed(self, user: str) -> set[str]:
        asked = [
            PlainQuestion(user_id=user, type="document", resource_id=one, organization_id="acme")
            for one in ("plans", "news")
        ]
        with opened_sql_view(self.engine) as view:
            return {one.resource_id for one in asked if decide(view, one, self.now, DecisionPolicy()).access_role}


@pytest.fixture
def writer(domain: Samba) -> Iterator[Writer]:
    writer = Writer(domain)
    yield writer
    writer.connection.unbind_s()


@pytest.mark.parametrize("account_expiry", [True, False])
def test_access_through_a_group_ends_with_the_next_read_after_the_account_expired(
    domain: Samba, writer: Writer, tmp_path: Path, *, account_expiry: bool
) -> None:
    contractor = writer.add_user("contractor", "Elsewhere", accountExpires=filetime(ENDS))
    employee = writer.add_user("employee", "Elsewhere")
    group = writer.add_group("x-eng", contractor, employee)
    usher = Installation(domain, tmp_path, account_expiry=account_expiry)
    everything = {"plans", "news"}
    assert usher.read_at(START) == ""
    assert (usher.allowed("contractor"), usher.allowed("employee")) == (everything, everything)
    assert usher.read_at(ENDS - timedelta(microseconds=1)) == "changes"
    assert usher.allowed("contractor") == everything

    # Nothing changes in the directory.
    assert usher.read_at(ENDS) == "changes"
    after = set() if account_expiry else everything
    assert (usher.allowed("contractor"), usher.allowed("employee")) == (after, everything)
    assert usher.read_at(ENDS + timedelta(days=1)) == "changes"
    assert usher.allowed("contractor") == after

    writer.set(contractor, "accountExpires", filetime(ENDS + timedelta(days=30)))
    assert usher.read_at(ENDS + timedelta(days=2)) == "changes"
    assert (usher.allowed("contractor"), usher.allowed("employee")) == (everything, everything)
    assert usher.read_at(ENDS + timedelta(days=31)) == "changes"
    assert usher.allowed("contractor") == after
    writer.set(contractor, "accountExpires", "0")
    assert usher.read_at(ENDS + timedelta(days=32)) == "changes"
    assert usher.allowed("contractor") == everything
    usher.engine.dispose()
    writer.delete(group, contractor, employee)


def test_a_full_read_disables_accounts_that_have_expired(domain: Samba, writer: Writer, tmp_path: Path) -> None:
    contractor = writer.add_user("contractor", "Elsewhere", accountExpires=filetime(ENDS))
    group = writer.add_group("x-eng", contractor)
    usher = Installation(domain, tmp_path)
    assert usher.read_at(ENDS) == ""
    assert usher.allowed("contractor") == set()
    usher.engine.dispose()
    writer.delete(group, contractor)


def connector_at(server: Samba, moment: datetime, **settings: Any) -> LdapConnector:
    given = {
        "url": server.url,
        "base": BASE,
        "preset": "active_directory",
        "bind_dn": samba.ADMIN,
        "bind_password": samba.PASSWORD,
        "sets": {"users": {"below": "OU=Elsewhere"}, "groups": {"below": "OU=Groups"}},
    }
    return LdapConnector(LdapConnectionSettings.model_validate(given | settings), clock=lambda: moment)


def test_incremental_reads_report_each_account_once_when_it_expires(domain: Samba, writer: Writer) -> None:
    second = timedelta(seconds=1)
    dns = [
        writer.add_user(f"ends-{number}", "Elsewhere", accountExpires=filetime(START + number * second))
        for number in range(4)
    ]
    outside = writer.add_user("ends-outside", accountExpires=filetime(START + second))
    whole = ask(connector_at(domain, START), wanted=WANTED)
    assert whole.verdict == "complete"
    expired = {place for place, one in whole.objects["users"].items() if "account_expired" in one.value}
    assert expired == {dns[0]}

    cursor = whole.cursor
    for number, reported in ((2, dns[1:3]), (2, []), (3, dns[3:]), (60, [])):
        answer = since(connector_at(domain, START + number * second), cursor, WANTED)
        assert answer.end is not None
        assert (answer.verdict, answer.end.answered, answer.gone) == ("complete", Answered.CHANGES, set())
        assert sorted(answer.objects.get("users", {})) == reported
        assert all(one.value["account_expired"] is True for one in answer.objects.get("users", {}).values())
        cursor = answer.cursor

    # An account that expired, and has changed as well, is reported once; so is one that changed back.
    writer.set(dns[1], "displayName", "Changed")
    answer = since(connector_at(domain, START + 2 * second), whole.cursor, WANTED)
    assert sorted(answer.objects["users"]) == dns[1:3]
    # The clock was set back: accounts that count as expired are read again.
    answer = since(connector_at(domain, START + second), cursor, WANTED)
    assert {place: "account_expired" in one.value for place, one in answer.objects["users"].items()} == {
        dns[1]: True,
        dns[2]: False,
        dns[3]: False,
    }
    writer.delete(*dns, outside)


@pytest.mark.parametrize("at", [None, "", "noon", 1, "2026-11-01T12:00:00"])
def test_a_cursor_without_the_time_of_its_read_is_refused(domain: Samba, at: object) -> None:
    connector = connector_at(domain, START)
    cursor = orjson.loads(ask(connector, wanted=WANTED).cursor)
    del cursor["at"]
    answer = since(connector, orjson.dumps(cursor if at is None else cursor | {"at": at}).decode(), WANTED)
    assert answer.end is not None
    assert (answer.end.answered, answer.objects, answer.gone) == (Answered.CURSOR_REFUSED, {}, set())
