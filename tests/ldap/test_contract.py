"""The contract suite for OpenLDAP and Samba."""

import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from app.directory.configured import source_from_settings
from app.directory.settings import LdapSourceSettings
from app.directory.source import End, Source, Verdict
from app.directory.testing.contract import SourceContract
from app.directory.testing.world import Content, SourceWorld, UnsupportedError, some_content
from tests.ldap import samba, slapd
from tests.ldap.conftest import need
from tests.ldap.slapd import SUFFIX, Slapd
from tests.worlds.faulty_reads import FaultyReads
from tests.worlds.tcp_proxy import TcpProxy, tcp_proxy

pytestmark = [pytest.mark.external, pytest.mark.process, pytest.mark.xdist_group("ldap")]


def rules(name: str) -> list[dict[str, object]]:
    """Rules that go by this attribute of people and by the ``cn`` of groups."""
    return [
        {"from": "users", "user": {"userId": f"it.{name}", "name": "it.displayName", "email": "it.mail"}},
        {"from": "groups", "each": "members", "membership": {"organizationId": "it.cn", "userId": "member.userId"}},
    ]


class LdapWorld(SourceWorld):
    """People and teams in a directory, behind a proxy that can cut."""

    settings: Mapping[str, Any]
    """Further settings of the source."""

    def __init__(self, between: TcpProxy, spool: Path, url: str, admin: str, password: str) -> None:
        import ldap

        self._between = between
        self._spool = spool
        self._ldap = ldap
        self.secret = password
        self.writer = ldap.initialize(url)
        self.writer.set_option(ldap.OPT_REFERRALS, 0)
        self.writer.simple_bind_s(admin, password)
        self._holds = Content()
        self._spoilt: list[str] = []

    def person(self, one: str) -> tuple[str, Mapping[str, str]]:
        """The DN of a person, and the required attributes except name and address."""
        raise NotImplementedError

    def team(self, team: str) -> tuple[str, Mapping[str, str]]:
        """The same of a team."""
        raise NotImplementedError

    def source(self, **settings: Any) -> Source:
        given = {
            "type": "ldap",
            "name": "people",
            "url": f"ldap://127.0.0.1:{self._between.port}",
            "bind_password": self.secret,
            "connect_timeout": 5,
            "answer_timeout": 5,
        }
        return source_from_settings(
            LdapSourceSettings.model_validate(given | dict(self.settings) | settings), self._spool
        )

    def set_content(self, content: Content) -> None:
        while self._spoilt:
            self.writer.delete_s(self.person(self._spoilt.pop())[0])
        for team in self._holds.teams.keys() - content.teams.keys():
            self.writer.delete_s(self.team(team)[0])
        for one, person in content.people.items():
            was = self._holds.people.get(one)
            if was is None:
                self._add(one, person.name, person.email)
            elif was != person:
                changes = [(self._ldap.MOD_REPLACE, "displayName", [person.name.encode()])]
                changes.append((self._ldap.MOD_REPLACE, "mail", [person.email.encode()]))
                self.writer.modify_s(self.person(one)[0], changes)
        for team, members in content.teams.items():
            values = [self.person(one)[0].encode() for one in sorted(members)]
            dn, given = self.team(team)
            if team not in self._holds.teams:
                self.writer.add_s(dn, [*((key, [value.encode()]) for key, value in given.items()), ("member", values)])
            elif members != self._holds.teams[team]:
                self.writer.modify_s(dn, [(self._ldap.MOD_REPLACE, "member", values)])
        for one in self._holds.people.keys() - content.people.keys():
            self.writer.delete_s(self.person(one)[0])
        self._holds = content

    def _add(self, one: str, name: str, email: str) -> None:
        dn, given = self.person(one)
        given = {**given, "displayName": name, "mail": email}
        self.writer.add_s(dn, [(key, [value.encode()]) for key, value in given.items()])

    @contextmanager
    def cut(self, share: float) -> Iterator[None]:
        self._between.reset()
        list(self.source().read())
        with self._between.cut(min(int(self._between.passed * share), self._between.passed - 1)):
            yield

    def add_unusable(self, person_id: str, text: str) -> None:
        try:
            self._add(person_id, text, f"{person_id}@contract.example")
        except (UnicodeEncodeError, self._ldap.INVALID_SYNTAX):
            raise UnsupportedError("the server takes no such name") from None
        self._spoilt.append(person_id)

    def failures(self) -> Mapping[str, AbstractContextManager[Source]]:
        @contextmanager
        def with_settings(**settings: Any) -> Iterator[Source]:
            yield self.source(**settings)

        @contextmanager
        def silent() -> Iterator[Source]:
            self._between.stall_after = 0
            yield self.source(connect_timeout=0.5, answer_timeout=0.5)
            self._between.reset()

        return {
            "a wrong password": with_settings(bind_password="wrong-" + self.secret),
            "a base that is not there": with_settings(base="dc=nowhere"),
            "nobody listens": with_settings(url="ldap://127.0.0.1:1"),
            "nobody answers": silent(),
        }


class OpenLdapWorld(LdapWorld):
    """The same in OpenLDAP."""

    settings = MappingProxyType(
        {"base": SUFFIX, "preset": "openldap", "bind_dn": slapd.READER, "page_size": 100, "map": rules("uid")}
    )

    def person(self, one: str) -> tuple[str, Mapping[str, str]]:
        return f"uid={one},ou=people,{SUFFIX}", {"objectClass": "inetOrgPerson", "uid": one, "cn": one, "sn": one}

    def team(self, team: str) -> tuple[str, Mapping[str, str]]:
        return f"cn={team},ou=groups,{SUFFIX}", {"objectClass": "groupOfNames", "cn": team}


class SambaWorld(LdapWorld):
    """The same in a corner of a domain, read by who may see that and what was deleted."""

    corner = f"OU=Contract,OU=Elsewhere,{samba.BASE}"
    settings = MappingProxyType(
        {
            "base": corner,
            "preset": "active_directory",
            "bind_dn": samba.RIGHTFUL,
            "page_size": 10,
            "map": rules("cn"),
        }
    )

    def person(self, one: str) -> tuple[str, Mapping[str, str]]:
        return f"CN={one},{self.corner}", {"objectClass": "user", "sAMAccountName": one, "userAccountControl": "544"}

    def team(self, team: str) -> tuple[str, Mapping[str, str]]:
        return f"CN={team},{self.corner}", {"objectClass": "group", "sAMAccountName": f"contract-{team}"}


class TestOpenLdap(FaultyReads, SourceContract):
    """Each test has a server of its own, in less than half a second."""

    people = 150
    many = 1_500
    rounds = 5

    @pytest.fixture
    def world(self, library: None, tmp_path: Path) -> Iterator[SourceWorld]:
        need(slapd.programs())
        server = Slapd(tmp_path / "slapd", slapd.tree())
        with slapd.running(server), tcp_proxy("127.0.0.1", server.port) as between:
            yield OpenLdapWorld(between, tmp_path / "spool", server.url, slapd.ADMIN, slapd.PASSWORD)

    def test_memory_does_not_grow_with_the_directory(self, world: SourceWorld) -> None:
        """Beyond what is held at a time in any case: a page, and the rows that the spool writes together."""
        world.set_content(some_content(1_000))
        few = _peak(world.source())
        world.set_content(some_content(2_000))
        many = _peak(world.source())
        assert many < few * 1.5 + 1_000_000, f"{few:,} bytes for half of the directory, {many:,} for all of it"


@pytest.fixture(scope="module")
def corner(domain: samba.Samba, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SambaWorld]:
    spool = tmp_path_factory.mktemp("samba") / "spool"
    with tcp_proxy(domain.host, 389) as between:
        world = SambaWorld(between, spool, domain.url, samba.ADMIN, samba.PASSWORD)
        world.writer.add_s(world.corner, [("objectClass", [b"organizationalUnit"])])
        yield world
        world.set_content(Content())
        world.writer.delete_s(world.corner)


class TestSamba(FaultyReads, SourceContract):
    """All tests have one corner of one domain, because people come to it slowly: they take over what the one before
    left, which is the same mostly."""

    people = 20
    many = 30
    rounds = 3
    cuts = (0.0, 0.3, 0.9)
    breaks = (0.02, 0.3, 0.9)

    @pytest.fixture
    def world(self, corner: SambaWorld) -> SourceWorld:
        return corner


def _peak(source: Source) -> int:
    tracemalloc.start()
    try:
        assert next(step for step in source.read() if isinstance(step, End)).verdict is Verdict.COMPLETE
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
