"""A message in the form that is kept until it is delivered."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import orjson

from app.foundation.outbound.failure import CallFailure
from app.monitoring.notify.concerns import Concern


class ConcernEvent(StrEnum):
    """What has happened to a concern."""

    BEGAN = "attention.began"
    CHANGED = "attention.changed"
    OVER = "attention.over"
    TEST = "attention.test"
    """Nothing has happened; somebody wants to know whether messages arrive."""


@dataclass(frozen=True, slots=True)
class Message:
    """One thing to tell; ``body`` is the JSON text that a webhook gets."""

    message_id: str
    """Lasting and unique: who gets a message twice can tell by it."""
    body: str

    @property
    def content(self) -> dict[str, Any]:
        """``type``, ``timestamp`` and ``data``."""
        content: dict[str, Any] = orjson.loads(self.body)
        return content


def body_of(event: ConcernEvent, concern: Concern, now: datetime) -> str:
    """The JSON text of a message, as Standard Webhooks lays it out. Times are ISO 8601 in UTC."""
    data: dict[str, object] = {
        "cause": concern.cause.value,
        "summary": f"over: {concern.says}" if event is ConcernEvent.OVER else concern.says,
        "since": iso(concern.since),
    }
    if concern.about:
        data["about"] = concern.about
    if concern.run_id is not None:
        data["runId"] = concern.run_id
    if concern.size:
        data["count"] = concern.size
    if event is not ConcernEvent.OVER:
        data["advice"] = concern.advice
    return orjson.dumps({"type": event.value, "timestamp": iso(now), "data": data}).decode()


def trial_body(now: datetime) -> str:
    """The JSON text of a message that is only to arrive."""
    data = {
        "cause": "test",
        "summary": "this is a test: messages from Usher arrive here",
        "since": iso(now),
        "advice": "nothing; somebody asked for it with usher doctor --notify",
    }
    return orjson.dumps({"type": ConcernEvent.TEST.value, "timestamp": iso(now), "data": data}).decode()


def iso(moment: datetime) -> str:
    """ISO 8601 in UTC."""
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


class NotDeliveredError(Exception):
    """A message was not delivered; the text is for the log. ``hopeless``: it never will be. ``failure``: what is known
    of a call that did not take place."""

    def __init__(self, reason: str, *, hopeless: bool = False, failure: CallFailure | None = None) -> None:
        super().__init__(reason)
        self.hopeless = hopeless
        self.failure = failure


class Channel(Protocol):
    """A way to people."""

    @property
    def name(self) -> str:
        """``webhook`` or ``email``: what waiting messages are kept under."""
        ...

    def send(self, message: Message) -> None:
        """Delivers it. Raises ``NotDeliveredError``."""
        ...
