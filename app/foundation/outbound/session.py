"""``requests`` sessions for outgoing calls. They ignore the environment, keep no cookies and check all certificates."""

from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import BaseAdapter, HTTPAdapter

from app.foundation.outbound.route import Route


def bare_session() -> requests.Session:
    """A session that reads no proxies or passwords from the environment and keeps no cookies, because its peers may be
    unrelated."""
    session = requests.Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


class VerifyingAdapter(HTTPAdapter):
    """Also checks the proxy's certificate for an http URL, which ``requests`` does not."""

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:  # noqa: ARG002 - the base class's
        super().cert_verify(conn, "https://", verify, cert)  # type: ignore[no-untyped-call,unused-ignore]


def session_for(route: Route, *, pool_size: int = 1, adapter: BaseAdapter | None = None) -> requests.Session:
    """A session for calls over ``route`` that keeps ``pool_size`` connections and does not retry.

    ``adapter`` replaces the network.
    """
    session = bare_session()
    session.verify = route.ca_file or True
    proxy = route.proxy.get_secret_value()
    session.proxies = {"http": proxy, "https": proxy} if proxy else {}
    mounted = adapter or VerifyingAdapter(pool_connections=1, pool_maxsize=pool_size, max_retries=0)
    for scheme in ("http://", "https://"):
        session.mount(scheme, mounted)
    return session
