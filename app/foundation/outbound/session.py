"""Sessions for outgoing calls along a route. Certificates are always checked, the proxy's included."""

from typing import Any

import requests
from requests.adapters import BaseAdapter, HTTPAdapter

from app.foundation.outbound.route import Route
from app.foundation.sessions import bare_session


class CheckingAdapter(HTTPAdapter):
    """The network. ``requests`` would check no certificate of a proxy on the way to an http address."""

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:  # noqa: ARG002 - the base class's
        super().cert_verify(conn, "https://", verify, cert)  # type: ignore[no-untyped-call,unused-ignore]


def session_along(route: Route, *, pool_size: int = 1, adapter: BaseAdapter | None = None) -> requests.Session:
    """A session for calls along ``route``, of which ``pool_size`` connections are kept. Nothing is tried again.

    ``adapter`` replaces the network.
    """
    session = bare_session()
    session.verify = route.ca_file or True
    proxy = route.proxy.get_secret_value()
    session.proxies = {"http": proxy, "https": proxy} if proxy else {}
    mounted = adapter or CheckingAdapter(pool_connections=1, pool_maxsize=pool_size, max_retries=0)
    for scheme in ("http://", "https://"):
        session.mount(scheme, mounted)
    return session
