"""What the audit log says of pushes: who pushed how much to which source, and who was refused."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flask import request
from sqlalchemy import Connection

from app.access.refresh.pushes import PushWitness
from app.access.refresh.refresh import Witness
from app.access.refresh.revision import ModelChange
from app.access.refresh.sources import COMPLETE, StagedRead
from app.foundation.audit import DONE, Actor, Audit
from app.foundation.text import counted
from app.http.request_id import current_request_id
from app.http.throttle import network_of
from app.http.tokens import token_fingerprint
from app.service.push.upload import without_advice
from app.service.refusals import Refusals


@dataclass(frozen=True, slots=True)
class PushAudit:
    """Writes down what is pushed, in the transaction that applies it, and what is refused."""

    audit: Audit
    refusals: Refusals

    def wrong_token(self, *, is_known: bool) -> None:
        """Writes a row about a caller with a wrong token. ``is_known``: the path names a source that exists."""
        self.refusals.wrong_token(_actor(""), request.path if is_known else str(request.url_rule))

    def refused(self, why: str) -> None:
        """Of somebody with the token of a source, this one or another."""
        self.refusals.note(_actor(), request.path, why, sort=_sort("refused"))

    def of_push(self, source: str, sequence: int) -> PushWitness | None:
        """None: there are too many to write each of them down."""
        end = self.refusals.rations.end_of(_sort("push", source))
        if end is None:
            return None
        actor = _actor()

        def note(connection: Connection, counts: Mapping[str, int], number: int) -> None:
            told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "nothing"
            # The number grows by one with each, so that rows tell of those between them as well.
            subject = f"{source}: push {number:,}, sequence {sequence}: {told}"
            self.audit.record(connection, actor, "pushed", subject=subject, outcome=f"{DONE}{end}")

        return note

    def of_everything(self, source: str, *, accept_shrink: bool) -> Witness | None:
        """The same for everything that a source says."""
        end = self.refusals.rations.end_of(_sort("everything", source))
        if end is None:
            return None
        actor = _actor()

        def note(connection: Connection, reads: Sequence[StagedRead], replaced: ModelChange) -> None:
            (read,) = reads
            subject = f"{source}: {counted(read.records, 'record')}{', acceptShrink' if accept_shrink else ''}"
            if read.verdict != COMPLETE:
                outcome = f"was not applied: {without_advice(read.reason)}"
            else:
                subject += f", revision {replaced.revision}"
                outcome = f"{DONE}{end}"
            self.audit.record(connection, actor, "pushed everything", subject=subject, outcome=outcome)

        return note


def _actor(role: str = "push") -> Actor:
    return Actor(
        name=f"push token {token_fingerprint(request)}" if role else "",
        role=role,
        way="api",
        address=request.remote_addr or "",
        request_id=current_request_id() or "",
    )


def _sort(what: str, source: str = "") -> str:
    """``source``: one that there is; what callers make up would be a sort of its own each time."""
    return f"{what} {token_fingerprint(request)} {network_of(request.remote_addr or '')} {source}"
