"""Sessions: who is signed in at the console.

A browser shows a random id of 256 bits; the database keeps its SHA-256. Nothing is signed, so that nodes share no
secret and a session can be ended. It ends after a while without a request, after twelve hours, by its owner's or an
admin's word, and when the token it was opened with is accepted no longer.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from random import Random
from typing import Any

from pydantic import SecretStr
from sqlalchemy import Connection, bindparam, delete, insert, select, update

from app.foundation.audit import Actor, Way
from app.foundation.clock import Clock, epoch_ms
from app.foundation.text import printable
from app.service.console.settings import ConsoleToken, Role
from app.service.console.tables import ConsoleSessionRow


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """Whose token it is."""

    name: str
    role: Role


class Credentials:
    """The tokens by their SHA-256; they themselves are not kept."""

    __slots__ = ("_owners",)

    def __init__(self, tokens: Iterable[ConsoleToken], admin_tokens: Iterable[SecretStr]) -> None:
        self._owners: dict[str, TokenOwner] = {}
        for admin in admin_tokens:
            if text := admin.get_secret_value():
                digest = _digest(text)
                self._owners[digest] = TokenOwner(f"admin token {digest[:8]}", Role.ADMIN)
        for token in tokens:
            # An empty one is nobody's: a field that was left empty must let nobody in.
            if text := token.token.get_secret_value():
                self._owners[_digest(text)] = TokenOwner(token.name, token.role)

    def __len__(self) -> int:
        return len(self._owners)

    def of_token(self, token: str) -> tuple[str, TokenOwner] | None:
        """The token's digest and its owner; takes as long for a near miss as for any other."""
        shown, found = _digest(token), ""
        for digest in self._owners:
            if hmac.compare_digest(digest, shown):
                found = digest
        return (found, self._owners[found]) if found else None

    def of_digest(self, digest: str) -> TokenOwner | None:
        """Whose it is that a session was opened with; None: nobody's any more."""
        return self._owners.get(digest)


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


_SESSION = ConsoleSessionRow.__table__
MOST_OF_ONE = 100
"""Sessions of one credential. One more ends the oldest of them."""
_SEEN_EVERY_MS = 60_000
"""How much later a request has to come for its time to be written down: not every one of them is to write."""
_FORM = b"the form token of "
_ONE = select(_SESSION).where(_SESSION.c.session_digest == bindparam("digest"))
"""Asked with every request, and so made once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session. Times are epoch milliseconds."""

    session_digest: str
    name: str
    role: Role
    credential: str
    address: str
    browser: str
    created_at: int
    seen_at: int


def session_digest(session_id: str) -> str:
    """Under which a session is kept."""
    return sha256(session_id.encode("utf-8", "surrogateescape")).hexdigest()


def form_token(session_id: str) -> str:
    """What the forms of a session carry: known to its pages, and to no other site's."""
    return sha256(_FORM + session_id.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions in one database."""

    clock: Clock
    random: Random
    """Must not be foreseeable: it makes the ids."""
    idle: timedelta
    longest: timedelta

    def open(
        self, connection: Connection, *, name: str, role: Role, credential: str, address: str, browser: str
    ) -> str:
        """Opens one, and returns the id for the browser."""
        session_id = f"{self.random.getrandbits(256):064x}"
        now = epoch_ms(self.clock())
        connection.execute(delete(_SESSION).where(_SESSION.c.created_at < epoch_ms(self.clock() - self.longest)))
        connection.execute(delete(_SESSION).where(_SESSION.c.seen_at < epoch_ms(self.clock() - self.idle)))
        older = (
            select(_SESSION.c.session_digest)
            .where(_SESSION.c.credential == credential)
            .order_by(_SESSION.c.created_at.desc(), _SESSION.c.session_digest)
            .offset(MOST_OF_ONE - 1)
        )
        connection.execute(delete(_SESSION).where(_SESSION.c.session_digest.in_(older)))
        connection.execute(
            insert(_SESSION).values(
                session_digest=session_digest(session_id),
                name=name,
                role=role.value,
                credential=credential,
                address=printable(address, limit=100),
                browser=printable(browser, limit=200),
                created_at=now,
                seen_at=now,
            )
        )
        return session_id

    def find(self, connection: Connection, session_id: str) -> Session | None:
        """The session of this id, if it lives."""
        row = connection.execute(_ONE, {"digest": session_digest(session_id)}).one_or_none()
        if row is None or not self._lives(row.created_at, row.seen_at):
            return None
        return _session(row._asdict())

    def is_to_be_noted(self, session: Session) -> bool:
        """Whether its last request is long enough ago for this one to be written down."""
        return epoch_ms(self.clock()) - session.seen_at >= _SEEN_EVERY_MS

    def note(self, connection: Connection, session: Session) -> None:
        """Writes down that it was used now."""
        connection.execute(
            update(_SESSION)
            .where(_SESSION.c.session_digest == session.session_digest)
            .values(seen_at=epoch_ms(self.clock()))
        )

    def listed(self, connection: Connection) -> list[Session]:
        """Those that live, who was seen last first."""
        rows = connection.execute(select(_SESSION).order_by(_SESSION.c.seen_at.desc(), _SESSION.c.session_digest))
        return [_session(row._asdict()) for row in rows if self._lives(row.created_at, row.seen_at)]

    def end(self, connection: Connection, digest: str) -> bool:
        """Ends one; whether there was one."""
        return connection.execute(delete(_SESSION).where(_SESSION.c.session_digest == digest)).rowcount > 0

    def end_all(self, connection: Connection, *, but: str = "") -> int:
        """Ends all but the one with this digest; how many."""
        return connection.execute(delete(_SESSION).where(_SESSION.c.session_digest != but)).rowcount

    def _lives(self, created_at: int, seen_at: int) -> bool:
        now = self.clock()
        return created_at >= epoch_ms(now - self.longest) and seen_at >= epoch_ms(now - self.idle)


def _session(values: dict[str, Any]) -> Session:
    return Session(**{**values, "role": Role(values["role"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Their name and role, and the session that shows it."""

    name: str
    role: Role
    way: Way
    """``console``: by a token; ``oidc``: through the issuer."""
    credential: str
    """What the session was opened with."""
    session_digest: str
    form_token: str
    address: str
    request_id: str

    def may(self, role: Role) -> bool:
        """Whether they may do what this role may."""
        return self.role.may(role)

    @property
    def actor(self) -> Actor:
        """They as the audit log knows them."""
        return Actor(
            name=self.name, role=self.role.value, way=self.way, address=self.address, request_id=self.request_id
        )

    @property
    def asked_by(self) -> str:
        """They in words, as a run keeps them."""
        return f"{self.name} ({self.way})"
