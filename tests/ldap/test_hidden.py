"""Hidden attributes by which rules disable do not enable users."""

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from app.access.decision.decide import DecisionPolicy, PlainQuestion, decide
from app.access.sql_view import opened_sql_view
from app.commands.schema import METADATA
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.directory.source import Answered, Verdict
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.sync.runs.directory_reads import ReadOptions, RefreshReport, SourceReport, read_directory
from tests.ldap import samba, slapd
from tests.ldap.samba import BASE, Samba
from tests.ldap.slapd import SUFFIX, Slapd, person_dn
from tests.ldap.test_active_directory import Writer

pytestmark = [pytest.mark.external, pytest.mark.process, pytest.mark.xdist_group("ldap")]

LEFT = range(0, 60, 2)
"""Those of the 60 people in OpenLDAP who left."""
PRESENT = {f"u{number}" for number in range(1, 60, 2)}
DISABLES = 'it.employeeType == "left"'
MAY_BE_MISSING = f"has(it.employeeType) && {DISABLES}"
CORNER = f"OU=Hidden,OU=Elsewhere,{BASE}"
USER_ACCOUNT_CONTROL = "bf967a68-0de6-11d0-a285-00aa003049e2"


class Model:
    """An access model, and who is let in by it."""

    def __init__(self, file: Path) -> None:
        self._folder = file.parent / f"{file.name}-spool"
        self.engine: Engine = open_engine(f"sqlite:///{file}")
        METADATA.create_all(self.engine)

    def read(self, settings: dict[str, Any], **options: Any) -> SourceReport:
        directory = DirectorySettings.model_validate({"sources": [settings]})
        sources = sources_from_settings(directory, spool=self._folder)
        report: RefreshReport = read_directory(self.engine, sources, ReadOptions(**options), clock=utc_now)
        return report.sources[0]

    def let_in(self, organization: str, users: Sequence[str]) -> set[str]:
        """Those of the users who have access to the organization."""
        policy = DecisionPolicy()
        asked = [
            PlainQuestion(user_id=user, type="organization", resource_id=organization, organization_id=organization)
            for user in users
        ]
        with opened_sql_view(self.engine) as view:
            return {one.user_id for one in asked if decide(view, one, utc_now(), policy).has_access}


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    model = Model(tmp_path / "usher.db")
    yield model
    model.engine.dispose()


def rules(user_id: str, disabled: str) -> list[dict[str, Any]]:
    """Each group is an organization of its members."""
    return [
        {"from": "users", "user": {"userId": user_id, "name": "it.cn", "email": "it.cn", "disabled": disabled}},
        {"from": "groups", "organization": {"organizationId": "it.cn", "organizationName": "it.cn"}},
        {"from": "groups", "each": "members", "membership": {"organizationId": "it.cn", "userId": "member.userId"}},
    ]


# OpenLDAP.


@pytest.fixture
def staff(own_slapd: Slapd) -> Slapd:
    """A server in which every second of the people left; the others have no ``employeeType``."""
    import ldap

    connection = ldap.initialize(own_slapd.url)
    connection.simple_bind_s(slapd.ADMIN, slapd.PASSWORD)
    for number in LEFT:
        connection.modify_s(person_dn(number), [(ldap.MOD_REPLACE, "employeeType", [b"left"])])
    connection.unbind_s()
    return own_slapd


def openldap(server: Slapd, disabled: str = DISABLES, **settings: Any) -> dict[str, Any]:
    return {
        "type": "ldap",
        "name": "people",
        "url": server.url,
        "base": SUFFIX,
        "preset": "openldap",
        "bind_dn": slapd.READER,
        "bind_password": slapd.PASSWORD,
        "full_every": 0,
        "map": rules("it.uid", disabled),
        **settings,
    }


def let_in(model: Model) -> set[str]:
    return model.let_in("everybody", [f"u{number}" for number in range(60)])


@pytest.mark.parametrize("is_first", [True, False], ids=["first read", "second read"])
def test_a_read_fails_if_no_object_has_the_attribute(staff: Slapd, model: Model, is_first: bool) -> None:
    if not is_first:
        assert model.read(openldap(staff)).verdict is Verdict.COMPLETE
        assert let_in(model) == PRESENT
    staff.hide("employeeType")
    report = model.read(openldap(staff))
    assert let_in(model) == (set() if is_first else PRESENT)
    assert report.verdict is Verdict.FAILED
    assert report.reason == (
        "rule 1 disables by employeeType, which none of the 60 objects of users has: give the reader the right to read"
        " it, or ask has(it.employeeType) first if it may be missing"
    )


def test_an_incremental_read_enables_no_user(staff: Slapd, model: Model) -> None:
    import ldap

    def rename(number: int) -> None:
        connection = ldap.initialize(staff.url)
        connection.simple_bind_s(slapd.ADMIN, slapd.PASSWORD)
        connection.modify_s(person_dn(number), [(ldap.MOD_REPLACE, "description", [b"changed"])])
        connection.unbind_s()

    settings = openldap(staff, full_every=3600)
    assert model.read(settings).verdict is Verdict.COMPLETE
    rename(4)
    changed = model.read(settings)
    assert (changed.verdict, changed.answered) == (Verdict.COMPLETE, Answered.CHANGES)
    staff.hide("employeeType")
    rename(4)
    report = model.read(settings)
    assert let_in(model) == PRESENT
    assert report.verdict is Verdict.FAILED
    assert "rule 1 disables by employeeType, which none of the 60 objects of users has" in report.reason


def test_a_rule_may_allow_that_no_object_has_the_attribute(staff: Slapd, model: Model) -> None:
    staff.hide("employeeType")
    assert model.read(openldap(staff, MAY_BE_MISSING)).verdict is Verdict.COMPLETE
    assert len(let_in(model)) == 60


def test_the_guard_holds_enabled_users(staff: Slapd, model: Model) -> None:
    model.read(openldap(staff))
    # u2, u10 to u18 and u20 to u28: 11 of the 30 who left.
    staff.hide("employeeType", "(|(uid=u1*)(uid=u2*))")
    settings = openldap(staff, guard={"count": 9, "percent": 20})
    report = model.read(settings)
    assert let_in(model) == PRESENT
    assert report.losses["disabled user"][0] == 11
    assert report.verdict is Verdict.PARTIAL
    assert "--accept-shrink" in report.refused
    # It is the operator's decision.
    assert model.read(settings, accept_shrink=["people"]).verdict is Verdict.COMPLETE
    assert len(let_in(model)) == 41


@pytest.mark.parametrize("guard", [{"count": 11, "percent": 0}, {"count": 0, "percent": 40}], ids=["count", "percent"])
def test_few_users_without_the_attribute_are_enabled(staff: Slapd, model: Model, guard: dict[str, float]) -> None:
    """Most people have no ``employeeType``: one whose value is hidden looks like one who came back."""
    model.read(openldap(staff))
    staff.hide("employeeType", "(|(uid=u1*)(uid=u2*))")
    report = model.read(openldap(staff, guard=guard))
    assert (report.verdict, report.refused) == (Verdict.COMPLETE, "")
    assert len(let_in(model)) == 41
    # A rule that disables without the attribute leaves no doubt, if everybody has it.
    model.read(openldap(staff, f"!has(it.employeeType) || {DISABLES}", guard=guard))
    assert let_in(model) == set()


# Active Directory.


@pytest.fixture
def corner(domain: Samba) -> Iterator[dict[str, str]]:
    """Name → GUID of eight accounts in an organization, four in each half, of which all but the last are disabled."""
    import ldap

    connection = Writer(domain).connection
    halves = [f"OU={name},{CORNER}" for name in ("Seen", "Unseen")]
    for dn in (CORNER, *halves):
        connection.add_s(dn, [("objectClass", [b"organizationalUnit"])])
    made = []
    for dn in halves:
        for number in range(4):
            name = f"{dn[3:].split(',')[0].lower()}{number}"
            account = {
                "objectClass": "user",
                "sAMAccountName": name,
                "userAccountControl": "544" if number == 3 else "546",
            }
            connection.add_s(f"CN={name},{dn}", [(key, [value.encode()]) for key, value in account.items()])
            made.append(f"CN={name},{dn}")
    group = {"objectClass": ["group"], "sAMAccountName": ["org-hidden"], "member": made}
    connection.add_s(f"CN=org-hidden,{CORNER}", [(key, [one.encode() for one in many]) for key, many in group.items()])
    found = connection.search_s(CORNER, ldap.SCOPE_SUBTREE, "(objectClass=user)", ["cn", "objectGUID"])
    yield {one["cn"][0].decode(): str(uuid.UUID(bytes_le=one["objectGUID"][0])) for _, one in found}
    for dn in (*made, f"CN=org-hidden,{CORNER}", *halves, CORNER):
        connection.delete_s(dn)
    connection.unbind_s()


def active_directory(server: Samba) -> dict[str, Any]:
    return {
        "type": "ldap",
        "name": "ad",
        "url": server.url,
        "base": CORNER,
        "preset": "active_directory",
        "bind_dn": samba.READER,
        "bind_password": samba.PASSWORD,
        "full_every": 0,
        "map": rules("it.objectGUID", "math.bitAnd(it.userAccountControl, 2) != 0"),
    }


def hide_account_control(server: Samba, dn: str) -> None:
    """Denies the reader to read it of all accounts below."""
    server.add_ace(dn, f"(OD;CI;RP;{USER_ACCOUNT_CONTROL};;{server.sid('reader')})")


def test_accounts_without_user_account_control_are_malformed(
    domain: Samba, corner: dict[str, str], model: Model, tmp_path: Path
) -> None:
    everybody, names = list(corner.values()), {id_: name for name, id_ in corner.items()}
    settings = active_directory(domain)
    assert model.read(settings).verdict is Verdict.COMPLETE
    assert {names[one] for one in model.let_in("org-hidden", everybody)} == {"seen3", "unseen3"}

    hide_account_control(domain, f"OU=Unseen,{CORNER}")
    report = model.read(settings)
    assert {names[one] for one in model.let_in("org-hidden", everybody)} == {"seen3", "unseen3"}
    assert (report.verdict, report.reason) == (Verdict.PARTIAL, "4 malformed records")
    first = Model(tmp_path / "first.db")
    assert first.read(settings).verdict is Verdict.PARTIAL
    assert {names[one] for one in first.let_in("org-hidden", everybody)} == {"seen3"}
    first.engine.dispose()

    hide_account_control(domain, f"OU=Seen,{CORNER}")
    report = model.read(settings)
    assert report.verdict is Verdict.FAILED
    assert "rule 1 disables by userAccountControl, which none of the 8 objects of users has" in report.reason
    assert {names[one] for one in model.let_in("org-hidden", everybody)} == {"seen3", "unseen3"}
    new = Model(tmp_path / "new.db")
    assert new.read(settings).verdict is Verdict.FAILED
    assert new.let_in("org-hidden", everybody) == set()
    new.engine.dispose()
