"""Messages about concerns, and the port of the channels that deliver them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import orjson

from app.foundation.clock import utc_text
from app.foundation.outbound.failure import CallFailure
from app.monitoring.notify.concerns import Concern


class ConcernEvent(StrEnum):
    """The event that a message reports."""

    BEGAN = "attention.began"
    CHANGED = "attention.changed"
    OVER = "attention.over"
    TEST = "attention.test"
    """A test message, sent by the doctor."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it is stored until it is delivered."""

    message_id: str
    """Constant over all tries, so that receivers can recognize duplicates."""
    body: str
    """JSON: the body of the webhook request."""

    @property
    def content(self) -> dict[str, Any]:
        """The body decoded: ``type``, ``timestamp`` and ``data``."""
        content: dict[str, Any] = orjson.loads(self.body)
        return content


class NotDeliveredError(Exception):
    """A message was not delivered. The text contains no secret.

    ``is_permanent``: a retry cannot succeed; ``failure``: the cause, if the connection failed.
    """

    def __init__(self, reason: str, *, is_permanent: bool = False, failure: CallFailure | None = None) -> None:
        super().__init__(reason)
        self.is_permanent = is_permanent
        self.failure = failure


class Channel(Protocol):
    """A channel that delivers messages, such as a webhook."""

    @property
    def name(self) -> str:
        """``webhook`` or ``email``: identifies the channel of a stored message."""
        ...

    def send(self, message: Message) -> None:
        """Delivers a message within a bounded time, perhaps not for the first time. Raises ``NotDeliveredError``."""
        ...


def message_body(event: ConcernEvent, concern: Concern, now: datetime) -> str:
    """The body of a message, in the form that Standard Webhooks recommends. Times are ISO 8601 in UTC."""
    is_over = event is ConcernEvent.OVER
    data: dict[str, object] = {
        "cause": concern.cause.value,
        "summary": f"over: {concern.summary}" if is_over else concern.summary,
        "since": utc_text(concern.since, timespec="seconds"),
    }
    if concern.about:
        data["about"] = concern.about
    if concern.run_id is not None:
        data["runId"] = concern.run_id
    if concern.size:
        data["count"] = concern.size
    if not is_over:
        data["advice"] = concern.advice
    return _body(event, now, data)


def trial_body(now: datetime) -> str:
    """The body of a test message."""
    data = {
        "cause": "test",
        "summary": "this is a test: messages from Usher arrive here",
        "since": utc_text(now, timespec="seconds"),
        "advice": "nothing to do: usher doctor --notify sent this message",
    }
    return _body(ConcernEvent.TEST, now, data)


def _body(event: ConcernEvent, now: datetime, data: Mapping[str, object]) -> str:
    timestamp = utc_text(now, timespec="seconds")
    return orjson.dumps({"type": event.value, "timestamp": timestamp, "data": data}).decode()
