"""Sign-ins under way: somebody was sent to the issuer and has not come back yet.

The browser keeps a secret; state, nonce and PKCE verifier follow from it, and the database keeps its SHA-256 alone. So
nodes share no secret, any of them may take the answer, and each attempt is used once.
"""

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from random import Random

from sqlalchemy import Connection, delete, func, insert, select

from app.clock import Clock, epoch_ms
from app.store.process_tables import ConsoleSignInRow

LIVES = timedelta(minutes=10)
"""For so long somebody may take to sign in at the issuer."""

MOST = 20
"""Sign-ins under way of one address."""

_SIGN_IN = ConsoleSignInRow.__table__
_LONGEST_PATH = 2048


@dataclass(frozen=True, slots=True, repr=False)
class Attempt:
    """One sign-in under way, by the secret that its browser keeps."""

    secret: str

    @property
    def state(self) -> str:
        """By which the answer is known to belong to this browser."""
        return self._derived("state")

    @property
    def nonce(self) -> str:
        """By which the ID token is known to be made for this sign-in."""
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        """By which the issuer knows that whoever shows the code began the sign-in (PKCE)."""
        return self._derived("verifier")

    @property
    def digest(self) -> str:
        """Under which it is kept."""
        return self._derived("row")

    def _derived(self, what: str) -> str:
        digest = sha256(f"{what} of {self.secret}".encode("utf-8", "surrogateescape")).digest()
        return urlsafe_b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Attempts:
    """The sign-ins under way in one database."""

    clock: Clock
    random: Random
    """Must not be foreseeable."""

    def begin(self, connection: Connection, *, address: str, back: str) -> Attempt | None:
        """A new one; None: too many of this address are under way."""
        now = self.clock()
        connection.execute(delete(_SIGN_IN).where(_SIGN_IN.c.created_at < epoch_ms(now - LIVES)))
        under_way = select(func.count()).select_from(_SIGN_IN).where(_SIGN_IN.c.address == address)
        if (connection.scalar(under_way) or 0) >= MOST:
            return None
        attempt = Attempt(f"{self.random.getrandbits(256):064x}")
        connection.execute(
            insert(_SIGN_IN).values(
                attempt_digest=attempt.digest,
                address=address,
                back=back if len(back) <= _LONGEST_PATH and back.isprintable() else "",
                created_at=epoch_ms(now),
            )
        )
        return attempt

    def end(self, connection: Connection, attempt: Attempt) -> str | None:
        """Ends one, and gives the page that was wanted; None: there is none, or it took too long."""
        row = connection.execute(
            delete(_SIGN_IN)
            .where(_SIGN_IN.c.attempt_digest == attempt.digest)
            .returning(_SIGN_IN.c.back, _SIGN_IN.c.created_at)
        ).one_or_none()
        if row is None or row.created_at < epoch_ms(self.clock() - LIVES):
            return None
        back: str = row.back
        return back
