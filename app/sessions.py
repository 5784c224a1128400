"""A session for outgoing calls that nothing but its owner has a say in."""

from http.cookiejar import DefaultCookiePolicy

import requests


def bare_session() -> requests.Session:
    """A session that reads no proxies and passwords from the environment and keeps no cookies: whom it calls are often
    strangers to each other, and what one of them says is not for the next one to hear.
    """
    session = requests.Session()
    session.trust_env = False
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session
