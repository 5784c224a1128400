"""A private certificate authority, and servers with its certificates."""

from collections.abc import Iterator

import pytest

from tests.foundation.outbound.servers import Answering, Authority, ForwardProxy, web_server
from tests.ports import free_port


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def plain_server() -> Iterator[Answering]:
    with web_server(Answering()) as server:
        yield server


@pytest.fixture
def tls_server(authority: Authority) -> Iterator[Answering]:
    with web_server(Answering(), authority.server_context()) as server:
        yield server


@pytest.fixture
def proxy() -> Iterator[ForwardProxy]:
    created = ForwardProxy("usher:TOP%SECRET")
    yield created
    created.close()


@pytest.fixture
def closed_port() -> int:
    """A port without a listener."""
    return free_port()
