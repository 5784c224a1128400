"""LDAP servers for tests. Each is started once, in one process: modules that use them are in the group ``ldap``."""

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ldap import samba, slapd
from tests.worlds.tcp_proxy import TcpProxy, tcp_proxy

WANTED = bool(os.environ.get("USHER_TEST_LDAP"))
"""Whether a missing server is a failure, and not a reason to skip (CI)."""

collect_ignore_glob = [] if WANTED or importlib.util.find_spec("ldap") is not None else ["test_*.py"]
"""Without the library, these modules cannot be imported."""


def need(reason: str) -> None:
    """Skips the test for a reason, or fails it if the servers are required."""
    if reason and WANTED:
        pytest.fail(f"USHER_TEST_LDAP demands it: {reason}")
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def library() -> None:
    """python-ldap is installed."""
    try:
        import ldap  # noqa: F401
    except ImportError:
        need("the library for LDAP is not installed (make ldap)")


@pytest.fixture(scope="session")
def standing_slapd(library: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[slapd.Slapd]:
    """An OpenLDAP server that no test changes: 1,300 people, 41 groups."""
    need(slapd.programs())
    server = slapd.Slapd(tmp_path_factory.mktemp("slapd") / "s", slapd.company(1_300, 40, in_group=70))
    with slapd.running(server):
        yield server


@pytest.fixture
def own_slapd(library: None, tmp_path: Path) -> Iterator[slapd.Slapd]:
    """An OpenLDAP server of the test's own: 60 people, 7 groups."""
    need(slapd.programs())
    with slapd.running(slapd.Slapd(tmp_path / "slapd", slapd.company(60, 6, in_group=9))) as server:
        yield server


@pytest.fixture(scope="session")
def domain(
    library: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[samba.Samba]:
    """An Active Directory domain. Tests that change it do not change what other tests read."""
    need(samba.programs())
    cache = request.config.cache.mkdir("samba")
    folder = tmp_path_factory.mktemp("samba") / "s"
    with samba.running(samba.Samba(folder, samba.provisioned(cache))) as server:
        yield server
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def meddled(standing_slapd: slapd.Slapd) -> Iterator[TcpProxy]:
    """A proxy in front of the server that no test changes."""
    with tcp_proxy("127.0.0.1", standing_slapd.port) as one:
        yield one
