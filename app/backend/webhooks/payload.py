"""Builds the payload that is stored for an event, and the body that is sent to a target.

The payload is one JSON object per event. A body is built from it for each attempt: a ``raw`` one contains the event, a
``processed`` one a message to display and its recipients. Both have the fields ``type``, ``timestamp`` and ``data``, as
Standard Webhooks suggests. An encrypted body is a compact JWE (RFC 7516): AES-256-GCM encrypts it with a new key, and
RSA-OAEP with SHA-256 encrypts that key for the receiver's public key.
"""

import base64
import binascii
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

from app.backend.events import Event
from app.contract.errors import InvalidArgument
from app.foundation.base64url import base64url
from app.foundation.clock import from_epoch_ms, utc_text

_NAME_VARIABLE = "{{actionUser.name}}"
_UNKNOWN_USER = "Somebody"
"""The subject of a headline if the request names no user."""
_IDS = frozenset(
    ("organizationId", "documentId", "locationId", "annotationId", "commentId", "reactionId", "editorId", "endpointId")
)
_PROCESSED_FIELDS = ("organizationId", "documentId", "locationId", "annotationId", "editorId", "metadata")
_EVENT_FIELDS = _IDS | {"reason", "metadata"}
"""The fields of an event that data protection keeps. ``reason`` and ``metadata`` are this server's own."""
_PART_FIELDS = _IDS | {"type", "createdAt", "lastUpdated"}
"""The fields of a thread, comment or reaction that data protection keeps."""
_PARTS = frozenset({"commentAnnotation", "comment", "reaction"})
_USERS = frozenset({"actionUser", "from", "assignedTo"})
_CHOICES = frozenset({"status", "priority"})
"""Objects of which only the id is kept. A text value is dropped, because a user may have written it."""
_HEADER = b'{"alg":"RSA-OAEP-256","enc":"A256GCM"}'
_KEY_BYTES, _IV_BYTES, _TAG_BYTES = 32, 12, 16
_KEY_BITS = range(2048, 8193)


class PublicKeyError(ValueError):
    """The text is not a usable public key. One line with the reason."""


@dataclass(frozen=True, slots=True)
class BodyOptions:
    """How the bodies for a target are built. Encryption takes precedence over encoding. ``enable_data_protection``
    removes texts that users wrote, and everything about a user except the id."""

    encrypt_data: bool = False
    encode_data: bool = False
    public_key: str = ""
    enable_data_protection: bool = False


def payload_of(event: Event, api_key_id: str, now: int, recipients: Sequence[str]) -> dict[str, object]:
    """The stored payload of an event. ``recipients`` are the users to notify."""
    place = {"organizationId": event.organization_id, "documentId": event.document_id}
    raw: dict[str, object] = {
        **place,
        "editorId" if event.kind.feature_type == "crdt" else "annotationId": event.target_id,
        "actionUser": dict(event.action_user),
        "metadata": {"apiKey": api_key_id, **place},
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
    return stored_payload(now, event.kind.template, recipients, raw)


def stored_payload(now: int, template: str, recipients: Sequence[str], raw: Mapping[str, object]) -> dict[str, object]:
    """The object from which ``body_of`` builds bodies. ``raw`` is the ``data`` of a raw body."""
    return {"at": now, "template": template, "told": list(recipients), "raw": raw}


def channels_of(event: Event) -> frozenset[str]:
    """The channels of an event: its organization, its document, and the thread's ``context.channels``."""
    context = event.annotation.get("context")
    channels = context.get("channels") if isinstance(context, dict) else None
    names = [name for name in channels if isinstance(name, str)] if isinstance(channels, list) else []
    return frozenset({f"organization:{event.organization_id}", f"document:{event.document_id}", *names})


def body_of(
    message_type: str, payload: Mapping[str, Any], options: BodyOptions, entropy: random.Random, *, processed: bool
) -> bytes:
    """The body to send. Raises ``PublicKeyError`` if it cannot be encrypted."""
    data = dict(payload["raw"])
    if options.enable_data_protection:
        data = _protected(data, _EVENT_FIELDS)
    if processed:
        data = _processed(message_type, payload, data, is_protected=options.enable_data_protection)
    body = orjson.dumps({"type": message_type, "timestamp": utc_text(from_epoch_ms(payload["at"])), "data": data})
    if options.encrypt_data:
        return orjson.dumps({"encryptedData": encrypt(body, parse_public_key(options.public_key), entropy)})
    if options.encode_data:
        return orjson.dumps({"encodedData": base64.b64encode(body).decode()})
    return body


def check_public_key(text: str, field: str) -> None:
    """Raises ``InvalidArgument`` about ``field`` unless the text is empty or a usable public key."""
    if text:
        try:
            parse_public_key(text)
        except PublicKeyError as error:
            raise InvalidArgument(f"{field}: {error}") from error


def parse_public_key(text: str) -> RSAPublicKey:
    """Parses an RSA key in PEM, or in base64 of DER. Raises ``PublicKeyError``."""
    try:
        if "-----BEGIN" in text:
            key = load_pem_public_key(text.encode())
        else:
            key = load_der_public_key(base64.b64decode("".join(text.split()).encode("ascii"), validate=True))
    except (ValueError, binascii.Error, UnsupportedAlgorithm) as error:
        raise PublicKeyError("must be an RSA public key in PEM, or in base64 of DER") from error
    if not isinstance(key, RSAPublicKey) or key.key_size not in _KEY_BITS:
        raise PublicKeyError("must be an RSA key of 2048 to 8192 bits")
    return key


def encrypt(body: bytes, public_key: RSAPublicKey, entropy: random.Random) -> str:
    """The body as a compact JWE."""
    key, iv = entropy.randbytes(_KEY_BYTES), entropy.randbytes(_IV_BYTES)
    encrypted_key = public_key.encrypt(key, OAEP(mgf=MGF1(SHA256()), algorithm=SHA256(), label=None))
    header = base64url(_HEADER)
    encrypted = AESGCM(key).encrypt(iv, body, header.encode())
    parts = (encrypted_key, iv, encrypted[:-_TAG_BYTES], encrypted[-_TAG_BYTES:])
    return ".".join([header, *map(base64url, parts)])


def _processed(
    message_type: str, payload: Mapping[str, Any], raw: Mapping[str, Any], *, is_protected: bool
) -> dict[str, object]:
    template = payload.get("template", "")
    actor = raw.get("actionUser") or {}
    name = actor.get("name") or actor.get("userId") or _UNKNOWN_USER
    source = {"eventType": message_type} | {key: raw[key] for key in ("annotationId", "editorId") if key in raw}
    data = {key: raw[key] for key in _PROCESSED_FIELDS if key in raw} | {
        "actionUser": actor,
        "displayHeadlineMessage": template.replace(_NAME_VARIABLE, str(name)),
        "displayHeadlineMessageTemplate": template,
        "displayHeadlineMessageTemplateData": {"actionUser": actor},
        "notifyUsers": [{"userId": user_id} for user_id in payload.get("told", ())],
        "notificationSourceData": source,
    }
    comment = raw.get("comment")
    if comment is not None:
        source["commentId"] = comment.get("commentId")
        if not is_protected:
            data["displayBodyMessage"] = comment.get("commentText", "")
    return data


def _protected(data: Mapping[str, Any], plain_fields: Collection[str]) -> dict[str, object]:
    """The ``plain_fields``, the ids of users and choices, and the same of nested parts."""
    protected: dict[str, object] = {}
    for name, value in data.items():
        if name in plain_fields:
            protected[name] = value
        elif name in _USERS and isinstance(value, dict):
            protected[name] = {"userId": value["userId"]} if "userId" in value else {}
        elif name in _CHOICES and isinstance(value, dict) and isinstance(value.get("id"), str):
            protected[name] = {"id": value["id"]}
        elif name in _PARTS and isinstance(value, dict):
            protected[name] = _protected(value, _PART_FIELDS)
    return protected
