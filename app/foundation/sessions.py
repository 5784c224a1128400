"""Sessions for outgoing calls, which take nothing from the environment."""

from http.cookiejar import DefaultCookiePolicy

import requests


def bare_session() -> requests.Session:
    """A session that reads no proxies and passwords from the environment and keeps no cookies: those that it calls are
    often strangers to each other, and what one of them sets is not for the next one to see.
    """
    session = requests.Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session
