"""Directories in LDAP keep what the port promises: the suite that every source has to pass, against OpenLDAP."""

import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.directory.configured import source_from_settings
from app.directory.contract_suite import CannotError, Content, SourceContract, World, some_content
from app.directory.settings import LdapSourceSettings
from app.directory.source import End, Source, Verdict
from tests.ldap import slapd
from tests.ldap.conftest import need
from tests.ldap.meddler import Meddler, meddler
from tests.ldap.slapd import SUFFIX, Slapd

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("ldap")]

RULES = [
    {"from": "users", "user": {"userId": "it.uid", "name": "it.displayName", "email": "it.mail"}},
    {"from": "groups", "each": "members", "membership": {"organizationId": "it.cn", "userId": "member.userId"}},
]


class OpenLdapWorld(World):
    """People and teams in OpenLDAP, behind a proxy that can cut."""

    secret = slapd.PASSWORD

    def __init__(self, server: Slapd, between: Meddler, spool: Path) -> None:
        import ldap

        self._server = server
        self._between = between
        self._spool = spool
        self._ldap = ldap
        self._writer = ldap.initialize(server.url)
        self._writer.simple_bind_s(slapd.ADMIN, slapd.PASSWORD)
        self._holds = Content()

    def source(self, **settings: Any) -> Source:
        given = {
            "type": "ldap",
            "name": "people",
            "url": f"ldap://127.0.0.1:{self._between.port}",
            "base": SUFFIX,
            "preset": "openldap",
            "bind_dn": slapd.READER,
            "bind_password": slapd.PASSWORD,
            "connect_timeout": 5,
            "answer_timeout": 5,
            "page_size": 100,
            "map": RULES,
        }
        return source_from_settings(LdapSourceSettings.model_validate(given | settings), self._spool)

    def bring(self, content: Content) -> None:
        for team in self._holds.teams.keys() - content.teams.keys():
            self._writer.delete_s(_team(team))
        for one, person in content.people.items():
            was = self._holds.people.get(one)
            if was is None:
                self._add(one, person.name, person.email)
            elif was != person:
                changes = [(self._ldap.MOD_REPLACE, "displayName", [person.name.encode()])]
                changes.append((self._ldap.MOD_REPLACE, "mail", [person.email.encode()]))
                self._writer.modify_s(_person(one), changes)
        for team, members in content.teams.items():
            values = [_person(one).encode() for one in sorted(members)]
            if team not in self._holds.teams:
                given = [("objectClass", [b"groupOfNames"]), ("cn", [team.encode()]), ("member", values)]
                self._writer.add_s(_team(team), given)
            elif members != self._holds.teams[team]:
                self._writer.modify_s(_team(team), [(self._ldap.MOD_REPLACE, "member", values)])
        for one in self._holds.people.keys() - content.people.keys():
            self._writer.delete_s(_person(one))
        self._holds = content

    def _add(self, one: str, name: str, email: str) -> None:
        given = {"objectClass": "inetOrgPerson", "uid": one, "cn": one, "sn": one, "displayName": name, "mail": email}
        self._writer.add_s(_person(one), [(key, [value.encode()]) for key, value in given.items()])

    @contextmanager
    def cut(self, share: float) -> Iterator[None]:
        self._between.forget()
        list(self.source().read())
        self._between.cut_after = min(int(self._between.passed * share), self._between.passed - 1)
        self._between.passed = 0
        try:
            yield
        finally:
            self._between.forget()

    def spoil(self, person_id: str, text: str) -> None:
        try:
            self._add(person_id, text, f"{person_id}@contract.example")
        except (UnicodeEncodeError, self._ldap.INVALID_SYNTAX):
            raise CannotError("the server takes no such name") from None

    def failures(self) -> Mapping[str, AbstractContextManager[Source]]:
        @contextmanager
        def with_settings(**settings: Any) -> Iterator[Source]:
            yield self.source(**settings)

        @contextmanager
        def silent() -> Iterator[Source]:
            self._between.stall_after = 0
            yield self.source(connect_timeout=0.5, answer_timeout=0.5)
            self._between.forget()

        return {
            "a wrong password": with_settings(bind_password="wrong-" + slapd.PASSWORD),
            "a base that is not there": with_settings(base="dc=nowhere"),
            "nobody listens": with_settings(url="ldap://127.0.0.1:1"),
            "nobody answers": silent(),
        }


def _person(one: str) -> str:
    return f"uid={one},ou=people,{SUFFIX}"


def _team(team: str) -> str:
    return f"cn={team},ou=groups,{SUFFIX}"


class TestOpenLdap(SourceContract):
    """Each test has a server of its own, in less than half a second."""

    people = 150
    many = 1_500
    rounds = 5

    @pytest.fixture
    def world(self, library: None, tmp_path: Path) -> Iterator[World]:
        need(slapd.programs())
        server = Slapd(tmp_path / "slapd", slapd.tree())
        with slapd.running(server), meddler("127.0.0.1", server.port) as between:
            yield OpenLdapWorld(server, between, tmp_path / "spool")

    def test_memory_does_not_grow_with_the_directory(self, world: World) -> None:
        """Beyond what is held at a time in any case: a page, and the rows that the spool writes together."""
        world.bring(some_content(1_000))
        few = _peak(world.source())
        world.bring(some_content(2_000))
        many = _peak(world.source())
        assert many < few * 1.5 + 1_000_000, f"{few:,} bytes for half of the directory, {many:,} for all of it"


def _peak(source: Source) -> int:
    tracemalloc.start()
    try:
        assert next(step for step in source.read() if isinstance(step, End)).verdict is Verdict.COMPLETE
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
