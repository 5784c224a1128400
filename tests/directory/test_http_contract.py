"""The contract suite for HTTP APIs."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from app.directory.configured import source_from_settings
from app.directory.settings import HttpSourceSettings
from app.directory.source import Source
from app.directory.testing.contract import SourceContract, peak
from app.directory.testing.world import Content, SourceWorld, UnsupportedError, claim, some_content
from tests.directory.identity_provider import DEEP, Group, IdentityProvider, identity_provider
from tests.worlds.faulty_reads import FaultyReads
from tests.worlds.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.process]

FULL_NAME = "it.lastName == '' ? it.firstName : it.firstName + ' ' + it.lastName"

RULES: Mapping[str, list[dict[str, object]]] = {
    "keycloak": [
        {"from": "users", "user": {"userId": "it.id", "name": FULL_NAME, "email": "it.email"}},
        {"from": "groups", "each": "members", "membership": {"organizationId": "it.name", "userId": "member.userId"}},
    ],
    "microsoft_graph": [
        {"from": "users", "user": {"userId": "it.id", "name": "it.displayName", "email": "it.mail"}},
        {
            "from": "groups",
            "each": "members",
            "membership": {"organizationId": "it.displayName", "userId": "member.userId"},
        },
    ],
    "scim": [
        {"from": "users", "user": {"userId": "it.id", "name": "it.displayName", "email": "it.userName"}},
        {
            "from": "groups",
            "each": "members",
            "membership": {"organizationId": "it.displayName", "userId": "member.userId"},
        },
    ],
}


class ApiWorld(SourceWorld):
    """People and groups behind an API, read through a proxy."""

    secret = "hunter2"

    def __init__(self, provider: IdentityProvider, between: TcpProxy, spool: Path) -> None:
        self._provider = provider
        self._between = between
        self._spool = spool

    def _settings(self, **more: object) -> Source:
        api = self._provider.api
        rules = [*RULES[api]]
        rules[0] = {**rules[0], "user": {**rules[0]["user"], "odd": "it.odd"}}  # type: ignore[dict-item]
        settings = {
            "type": "http",
            "name": "idp",
            "preset": api,
            "base_url": self._provider.base_url,
            "auth": {"token": self.secret},
            "connect_timeout": 2,
            "map": rules,
        }
        return source_from_settings(HttpSourceSettings.model_validate(settings | more), self._spool)

    def source(self) -> Source:
        return self._settings()

    def set_content(self, content: Content) -> None:
        users, groups = dict(self._provider.users), dict(self._provider.groups)
        self._provider.users.clear()
        for one, person in content.people.items():
            self._provider.add_user(one, person.name, person.email)
        self._provider.groups = {
            f"g-{team}": Group(team, sorted(members)) for team, members in content.teams.items() if members
        }

        for name, before, after in (("users", users, self._provider.users), ("groups", groups, self._provider.groups)):
            entries: list[dict[str, object]] = [
                {"id": id_} if id_ in after else {"id": id_, "@removed": {"reason": "deleted"}}
                for id_ in before.keys() | after.keys()
                if before.get(id_) != after.get(id_)
            ]
            self._provider.log += [(name, entry) for entry in entries]

    @contextmanager
    def cut(self, share: float) -> Iterator[None]:
        self._between.reset()
        list(self.source().read())
        with self._between.cut(int(self._between.passed * share)):
            yield

    def add_unusable(self, person_id: str, text: str) -> None:
        self._provider.add_user(person_id, f"{text} x", "")

    def add_nested(self, person_id: str, depth: int) -> None:
        if depth > 1000:
            raise UnsupportedError("a page that is nested deeper is not read")
        self._provider.deep = "[" * depth + "]" * depth
        self._provider.add_user(person_id, "Deep x", "deep", odd=DEEP)

    def failures(self) -> Mapping[str, AbstractContextManager[Source]]:
        @contextmanager
        def of(**settings: object) -> Iterator[Source]:
            yield self._settings(**settings)

        self._provider.authorization = lambda header: header == f"Bearer {self.secret}"
        return {
            "a wrong token": of(auth={"token": f"{self.secret}-wrong"}),
            "a wrong address": of(base_url=f"{self._provider.url}/nowhere"),
            "nobody listens": of(base_url="http://127.0.0.1:1"),
            "no such host": of(base_url="https://nowhere.invalid"),
            "no TLS": of(base_url=self._provider.base_url.replace("http:", "https:")),
        }


class TestHttpApis(FaultyReads, SourceContract):
    people = 60
    many = 1_500
    rounds = 2
    cuts = (0.0, 0.02, 0.5, 0.99)

    @pytest.fixture(params=["keycloak", "microsoft_graph", "scim"])
    def world(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ApiWorld]:
        with identity_provider(request.param) as provider:
            between = TcpProxy("127.0.0.1", int(provider.url.rpartition(":")[2]))
            # Links in its answers lead through the proxy, too.
            provider.url = f"http://127.0.0.1:{between.port}"
            try:
                yield ApiWorld(provider, between, tmp_path / "spool")
            finally:
                between.close()

    def test_memory_does_not_grow_with_the_directory(self, world: SourceWorld) -> None:
        """All members of one group are in memory, so there are only people."""
        peaks = []
        for people in (1_000, 10_000):
            world.set_content(Content(some_content(people).people))
            peaks.append(peak(world.source()))
        claim(peaks[1] < peaks[0] * 1.5, f"{peaks[0]:,} bytes for a tenth of the directory, {peaks[1]:,} for all of it")
