"""The payload: what does a webhook say?

An event is kept as one JSON object, whole. What a target gets of it is made when it is sent: ``raw`` is what happened,
``processed`` is what to show to whom. Both have the form that Standard Webhooks suggests: type, timestamp, data.
"""

import base64
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

from app.backend.events import Event
from app.backend.webhooks.encryption import encrypt, parse_public_key

Form = Literal["raw", "processed"]
_TARGETS = {"crdt": "editorId"}
"""What an event is about, by feature; all others are about a thread."""
_NAME_PLACE = "{{actionUser.name}}"
_SOMEBODY = "Somebody"
"""Who acts where the request does not say: a headline needs a subject."""
_IDS = frozenset(
    ("organizationId", "documentId", "locationId", "annotationId", "commentId", "reactionId", "editorId", "endpointId")
)
_OF_EVENT = _IDS | {"reason", "metadata"}
"""What the event itself has of this server's own words: why an endpoint was disabled, and where something happened."""
_OF_PART = _IDS | {"type", "createdAt", "lastUpdated"}
_PARTS = frozenset({"commentAnnotation", "comment", "reaction"})
_USERS = frozenset({"actionUser", "from", "assignedTo"})
_CHOICES = frozenset({"status", "priority"})
"""Of a choice its id alone; one that is given as text may be anything."""


@dataclass(frozen=True, slots=True)
class Wrapping:
    """How a target wants its bodies. Encrypted goes before encoded; ``protects`` leaves out whatever
    people wrote, and all of a user but the id.
    """

    encodes: bool = False
    encrypts: bool = False
    public_key: str = ""
    protects: bool = False


def payload_of(event: Event, api_key_id: str, now: int, told: Sequence[str]) -> dict[str, object]:
    """The event as it is kept. ``told`` are the users whom it concerns."""
    raw: dict[str, object] = {
        "organizationId": event.organization_id,
        "documentId": event.document_id,
        _TARGETS.get(event.kind.feature_type, "annotationId"): event.target_id,
        "actionUser": dict(event.action_user),
        "metadata": {
            "apiKey": api_key_id,
            "organizationId": event.organization_id,
            "documentId": event.document_id,
        },
    }
    if event.location_id:
        raw["locationId"] = event.location_id
    for name, part in (
        ("commentAnnotation", event.annotation),
        ("comment", event.comment),
        ("reaction", event.reaction),
        ("changes", event.changes),
    ):
        if part:
            raw[name] = dict(part)
    return {"at": now, "template": event.kind.template, "told": list(told), "raw": raw}


def channels_of(event: Event) -> frozenset[str]:
    """The channels that an event goes out on: its organization's, its document's, and those that the thread's own
    ``context.channels`` lists.
    """
    context = event.annotation.get("context")
    listed = context.get("channels") if isinstance(context, dict) else None
    own = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return frozenset({f"organization:{event.organization_id}", f"document:{event.document_id}", *own})


def body_of(
    message_type: str, payload: Mapping[str, Any], form: Form, wrapping: Wrapping, entropy: random.Random
) -> bytes:
    """The body that is sent. Raises ``PublicKeyError`` when there is no usable key to encrypt with."""
    raw = dict(payload["raw"])
    if wrapping.protects:
        raw = _protected(raw, _OF_EVENT)
    data = raw if form == "raw" else _processed(message_type, payload, raw, protects=wrapping.protects)
    body = orjson.dumps({"type": message_type, "timestamp": iso_time(payload["at"]), "data": data})
    if wrapping.encrypts:
        return orjson.dumps({"encryptedData": encrypt(body, parse_public_key(wrapping.public_key), entropy)})
    if wrapping.encodes:
        return orjson.dumps({"encodedData": base64.b64encode(body).decode()})
    return body


def iso_time(moment: int) -> str:
    """Epoch milliseconds as ISO 8601, in UTC."""
    return datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _processed(
    message_type: str, payload: Mapping[str, Any], raw: Mapping[str, Any], *, protects: bool
) -> dict[str, object]:
    template = payload.get("template", "")
    actor = raw.get("actionUser") or {}
    who = actor.get("name") or actor.get("userId") or _SOMEBODY
    source = {"eventType": message_type} | {name: raw[name] for name in ("annotationId", "editorId") if name in raw}
    data: dict[str, object] = {name: raw[name] for name in _PLACES if name in raw}
    data |= {
        "actionUser": actor,
        "displayHeadlineMessage": template.replace(_NAME_PLACE, str(who)),
        "displayHeadlineMessageTemplate": template,
        "displayHeadlineMessageTemplateData": {"actionUser": actor},
        "notifyUsers": [{"userId": user_id} for user_id in payload.get("told", ())],
        "notificationSourceData": source,
    }
    comment = raw.get("comment")
    if comment is not None:
        source["commentId"] = comment.get("commentId")
        if not protects:
            data["displayBodyMessage"] = comment.get("commentText", "")
    return data


_PLACES = ("organizationId", "documentId", "locationId", "annotationId", "editorId", "metadata")


def _protected(told: Mapping[str, Any], plain: Collection[str]) -> dict[str, object]:
    """Ids, kinds and times: the fields ``plain``, of users and choices the id, and the same of the parts."""
    kept: dict[str, object] = {}
    for name, value in told.items():
        if name in plain:
            kept[name] = value
        elif name in _USERS and isinstance(value, dict):
            kept[name] = {"userId": value["userId"]} if "userId" in value else {}
        elif name in _CHOICES and isinstance(value, dict) and isinstance(value.get("id"), str):
            kept[name] = {"id": value["id"]}
        elif name in _PARTS and isinstance(value, dict):
            kept[name] = _protected(value, _OF_PART)
    return kept
