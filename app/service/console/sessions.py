"""The sessions of the console, and the signed-in operator of a request.

A session has a random id of 256 bits. The browser stores it in a cookie, and the database stores its SHA-256. Nodes
share no secret. A session ends after an idle timeout, at its maximum age, when an operator ends it, and when its
credential is no longer valid. A sign-in link is stored in the same table. It signs no one in, because its credential is
that of its owner with a prefix.
"""

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from random import Random
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from app.foundation.audit import Actor, Way
from app.foundation.clock import Clock, epoch_ms
from app.foundation.text import printable
from app.service.console.settings import Role
from app.service.console.tables import ConsoleSessionRow
from app.service.refusals import request_actor

_SESSION = ConsoleSessionRow.__table__
MAX_SESSIONS = 100
"""Sessions of one credential. A further one ends the oldest."""
LINK_TIMEOUT = timedelta(minutes=5)
"""A sign-in link is valid for this long, and once."""
LINK_PREFIX = "once-"
"""The beginning of the token of a sign-in link."""
_LINK_CREDENTIAL = "link:"
"""The prefix of the credential of a sign-in link."""
_TOUCH_AFTER_MS = 60_000
"""The time of the last request is stored at most once a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session. Times are epoch milliseconds."""

    session_digest: str
    name: str
    role: Role
    credential: str
    """The credential that opened it, as in ``ConsoleSessionRow``."""
    address: str
    browser: str
    created_at: int
    seen_at: int


def session_digest(session_id: str) -> str:
    """The key of a session in the database."""
    return sha256(session_id.encode("utf-8", "surrogateescape")).hexdigest()


def form_token(session_id: str) -> str:
    """The token in the forms of a session, which protects against requests from other sites."""
    return sha256(b"the form token of " + session_id.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions in one database."""

    clock: Clock
    random: Random
    """Creates the ids. Must not be predictable."""
    idle_timeout: timedelta
    max_age: timedelta

    def open(
        self, connection: Connection, *, name: str, role: Role, credential: str, address: str, browser: str
    ) -> str:
        """Creates a session, deletes expired and surplus ones, and returns the new id."""
        session_id = f"{self.random.getrandbits(256):064x}"
        now = self.clock()
        connection.execute(delete(_SESSION).where(_SESSION.c.created_at < epoch_ms(now - self.max_age)))
        connection.execute(delete(_SESSION).where(_SESSION.c.seen_at < epoch_ms(now - self.idle_timeout)))
        surplus = (
            select(_SESSION.c.session_digest)
            .where(_SESSION.c.credential == credential)
            .order_by(_SESSION.c.created_at.desc(), _SESSION.c.session_digest)
            .offset(MAX_SESSIONS - 1)
        )
        connection.execute(delete(_SESSION).where(_SESSION.c.session_digest.in_(surplus)))
        connection.execute(
            insert(_SESSION).values(
                session_digest=session_digest(session_id),
                name=name,
                role=role.value,
                credential=credential,
                address=printable(address, limit=100),
                browser=printable(browser, limit=200),
                created_at=epoch_ms(now),
                seen_at=epoch_ms(now),
            )
        )
        return session_id

    def create_link(self, connection: Connection, credential: str) -> str:
        """Creates the token of a sign-in link for a credential, and returns it. The database stores its SHA-256."""
        return LINK_PREFIX + self.open(
            connection, name="", role=Role.VIEWER, credential=_LINK_CREDENTIAL + credential, address="", browser=""
        )

    def redeem_link(self, connection: Connection, token: str) -> str | None:
        """Uses up the token of a sign-in link, and returns its credential. None: it is invalid, or was used before."""
        credential: str | None = connection.execute(
            delete(_SESSION)
            .where(_SESSION.c.session_digest == session_digest(token.removeprefix(LINK_PREFIX)))
            .where(_SESSION.c.credential.startswith(_LINK_CREDENTIAL))
            .where(_SESSION.c.created_at > epoch_ms(self.clock() - LINK_TIMEOUT))
            .returning(_SESSION.c.credential)
        ).scalar_one_or_none()
        return None if credential is None else credential.removeprefix(_LINK_CREDENTIAL)

    def find(self, connection: Connection, session_id: str) -> Session | None:
        """The session with this id. None: there is none, or it has expired."""
        by_digest = select(_SESSION).where(_SESSION.c.session_digest == session_digest(session_id))
        row = connection.execute(by_digest).one_or_none()
        session = None if row is None else _session(row._asdict())
        return session if session is not None and self._is_valid(session) else None

    def needs_touch(self, session: Session) -> bool:
        """Whether the time of the last request has to be updated."""
        return epoch_ms(self.clock()) - session.seen_at >= _TOUCH_AFTER_MS

    def touch(self, connection: Connection, session: Session) -> None:
        """Updates the time of the last request."""
        connection.execute(
            update(_SESSION)
            .where(_SESSION.c.session_digest == session.session_digest)
            .values(seen_at=epoch_ms(self.clock()))
        )

    def list_all(self, connection: Connection) -> list[Session]:
        """All valid sessions, the most recently used first."""
        rows = connection.execute(select(_SESSION).order_by(_SESSION.c.seen_at.desc(), _SESSION.c.session_digest))
        return [session for row in rows if self._is_valid(session := _session(row._asdict()))]

    def end(self, connection: Connection, digest: str) -> None:
        connection.execute(delete(_SESSION).where(_SESSION.c.session_digest == digest))

    def end_others(self, connection: Connection, digest: str) -> int:
        """Ends all sessions except one. Returns their number."""
        return connection.execute(delete(_SESSION).where(_SESSION.c.session_digest != digest)).rowcount

    def _is_valid(self, session: Session) -> bool:
        now = self.clock()
        is_young = session.created_at >= epoch_ms(now - self.max_age)
        return is_young and session.seen_at >= epoch_ms(now - self.idle_timeout)


def _session(values: dict[str, Any]) -> Session:
    return Session(**{**values, "role": Role(values["role"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The signed-in operator of one request, and their session."""

    name: str
    role: Role
    way: Way
    """``console`` after a sign-in by token, ``oidc`` after one through the issuer."""
    credential: str
    """The credential that opened the session."""
    session_digest: str
    form_token: str

    def may(self, role: Role) -> bool:
        return self.role.may(role)

    @property
    def actor(self) -> Actor:
        return request_actor(self.name, self.way, self.role.value)

    @property
    def asked_by(self) -> str:
        """The operator as a run stores them."""
        return f"{self.name} ({self.way})"
