import base64
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from sqlalchemy import select

from app.backend.events import EVENT_KINDS
from app.backend.webhooks.config import DEFAULT_TRIGGERS
from app.backend.webhooks.tables import WEBHOOK_CONFIG, WEBHOOK_MESSAGE
from tests.backend.conftest import BackendWorld, Caller

from .conftest import ADA, BOB, DOCUMENT, Post, Receiver

PEM, SPKI = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
PRIVATE_KEY = rsa.generate_private_key(65537, 2048)
PUBLIC_KEY = PRIVATE_KEY.public_key().public_bytes(PEM, SPKI).decode()
UNSET: dict[str, Any] = {
    "useWebhookService": False,
    "webhookServiceConfig": {
        "authToken": "",
        "rawNotificationUrl": "",
        "processedNotificationUrl": "",
        "encodeData": False,
        "encryptData": False,
        "publicKey": "",
        "enableDataProtection": False,
        "triggers": {},
    },
}


def decrypted(jwe: str, private_key: rsa.RSAPrivateKey = PRIVATE_KEY) -> bytes:
    """Decrypts a JWE by RFC 7516, without the code under test."""
    header, sealed_key, iv, text, tag = jwe.split(".")

    def raw(part: str) -> bytes:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))

    assert orjson.loads(raw(header)) == {"alg": "RSA-OAEP-256", "enc": "A256GCM"}
    key = private_key.decrypt(raw(sealed_key), OAEP(mgf=MGF1(SHA256()), algorithm=SHA256(), label=None))
    return AESGCM(key).decrypt(raw(iv), raw(text) + raw(tag), header.encode())


def test_the_config_is_merged_and_triggers_are_seeded(tenant: Caller) -> None:
    assert tenant("get_webhook_config") == UNSET
    tenant("update_webhook_config", webhookServiceConfig={"authToken": "t0ken", "encodeData": True})

    state = tenant(
        "update_webhook_config",
        useWebhookService=True,
        webhookServiceConfig={"triggers": {"comment.update": False, "crdt.update": True}},
    )

    assert state == {
        "useWebhookService": True,
        "webhookServiceConfig": UNSET["webhookServiceConfig"]
        | {"authToken": "t0ken", "encodeData": True}
        | {"triggers": DEFAULT_TRIGGERS | {"comment.update": False, "crdt.update": True}},
    }
    assert tenant("get_webhook_config") == state


def test_existing_triggers_are_not_seeded_again(tenant: Caller) -> None:
    tenant("update_webhook_config", webhookServiceConfig={"triggers": {"comment.add": True}})
    state = tenant("update_webhook_config", useWebhookService=True)
    assert state["webhookServiceConfig"]["triggers"] == {"comment.add": True}

    state = tenant("update_webhook_config", webhookServiceConfig={"triggers": {"comment.delete": True}})

    assert state["webhookServiceConfig"]["triggers"] == {"comment.add": True, "comment.delete": True}


def test_the_default_triggers_are_those_of_the_reference() -> None:
    off = {name for name, on in DEFAULT_TRIGGERS.items() if not on}
    assert {"comment_annotation.suggestion_accept", "comment_annotation.suggestion_reject"} <= off
    assert {name.partition(".")[0] for name in off} == {"comment_annotation", "crdt", "recorder"}
    assert {name for name in DEFAULT_TRIGGERS if name.startswith("huddle.")}.isdisjoint(off)


WEAK = rsa.generate_private_key(65537, 1024).public_key().public_bytes(PEM, SPKI).decode()
OTHER_KIND = ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(PEM, SPKI).decode()


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"rawNotificationUrl": "http://127.0.0.1/x"}, "rawNotificationUrl"),
        ({"processedNotificationUrl": "https://u:p@acme.example/"}, "processedNotificationUrl"),
        ({"processedNotificationUrl": "acme.example"}, "processedNotificationUrl"),
        ({"authToken": "with space"}, "authToken"),
        ({"publicKey": "no key"}, "publicKey"),
        ({"publicKey": WEAK}, "publicKey"),
        ({"publicKey": OTHER_KIND}, "publicKey"),
        ({"encryptData": True}, "publicKey"),
        ({"triggers": {str(number): True for number in range(201)}}, "triggers"),
        ({"triggers": {"comment.add": "yes"}}, "triggers.comment.add"),
    ],
)
def test_an_invalid_config_is_refused_completely(standing: BackendWorld, config: dict[str, Any], field: str) -> None:
    tenant = standing.tenant()
    requested = {"authToken": "good", "encodeData": True} | config

    code, status, message = tenant.refused(
        "update_webhook_config", useWebhookService=True, webhookServiceConfig=requested
    )

    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith(f"data.webhookServiceConfig.{field}: ")
    assert tenant("get_webhook_config") == UNSET


def test_the_token_is_stored_encrypted(world: BackendWorld) -> None:
    world.tenant()("update_webhook_config", webhookServiceConfig={"authToken": "very-secret-token"})
    with world.engine.connect() as connection:
        (row,) = connection.execute(select(WEBHOOK_CONFIG)).all()
    assert "very-secret-token" not in str(tuple(row))


def enable(post: Post, receiver: Receiver, **config: Any) -> None:
    urls = {
        "rawNotificationUrl": f"{receiver.url}/raw",
        "processedNotificationUrl": f"{receiver.url}/processed",
        "authToken": "t0ken",
    }
    post.tenant("update_webhook_config", useWebhookService=True, webhookServiceConfig=urls | config)


def test_raw_and_processed_events_arrive_with_the_token(post: Post, receiver: Receiver) -> None:
    enable(post, receiver)
    post.begin_thread("t1", assignedTo=BOB)
    post.work()

    assert {received.headers["authorization"] for received in receiver.got} == {"Bearer t0ken"}
    raw = [received for received in receiver.got if received.path == "/raw"]
    assert sorted(received.json["type"] for received in raw) == ["comment.add", "comment_annotation.add"]
    (added,) = (received.json for received in raw if received.json["type"] == "comment.add")
    assert added["timestamp"] == "2026-11-20T12:00:00.000Z"
    data = added["data"]
    assert (data["organizationId"], data["documentId"], data["annotationId"]) == ("acme", "roadmap", "t1")
    assert data["metadata"]["apiKey"] == post.tenant.ids["api_key"]
    assert data["actionUser"]["userId"] == "ada"
    assert data["comment"]["commentText"] == "Why so late?"
    (shown,) = (
        received.json["data"]
        for received in receiver.got
        if received.path == "/processed" and received.json["type"] == "comment_annotation.add"
    )
    assert shown["displayHeadlineMessage"] == "Ada began a comment thread."
    assert shown["notifyUsers"] == [{"userId": "bob"}]
    # The two forms of one event are one message.
    assert len(set(receiver.ids)) == 2
    assert len(receiver.ids) == 4


def test_a_headline_without_an_action_user_has_a_subject(post: Post, receiver: Receiver) -> None:
    enable(post, receiver)
    post.begin_thread("t1")
    post.tenant("update_comment_annotations", **DOCUMENT, annotationIds=["t1"], updatedData={"status": "open"})
    post.work()

    (shown,) = (
        received.json["data"]
        for received in receiver.got
        if received.path == "/processed" and received.json["type"] == "comment_annotation.status_change"
    )
    assert shown["displayHeadlineMessage"] == "Somebody changed the status."


def test_triggers_that_are_off_send_nothing(post: Post, receiver: Receiver) -> None:
    enable(post, receiver, triggers={"comment.add": False})
    post.begin_thread("t1")
    post.work()
    assert {received.json["type"] for received in receiver.got} == {"comment_annotation.add"}


def test_an_event_without_targets_writes_no_message(post: Post, receiver: Receiver) -> None:
    enable(post, receiver)
    post.tenant("update_webhook_config", useWebhookService=False)
    post.begin_thread("t1")
    with post.world.engine.connect() as connection:
        assert connection.execute(select(WEBHOOK_MESSAGE)).all() == []


@pytest.mark.parametrize("key", [PUBLIC_KEY, "".join(PUBLIC_KEY.splitlines()[1:-1])], ids=["PEM", "base64"])
def test_encrypted_bodies_open_with_the_private_key(post: Post, receiver: Receiver, key: str) -> None:
    enable(post, receiver, encryptData=True, encodeData=True, publicKey=key, processedNotificationUrl="")
    post.begin_thread("t1")
    post.work()

    bodies = [received.json for received in receiver.got]
    assert [set(body) for body in bodies] == [{"encryptedData"}] * 2
    opened = [orjson.loads(decrypted(body["encryptedData"])) for body in bodies]
    assert sorted(event["type"] for event in opened) == ["comment.add", "comment_annotation.add"]
    assert b"Why so late" not in b"".join(received.body for received in receiver.got)


def test_encoded_bodies_are_base64(post: Post, receiver: Receiver) -> None:
    enable(post, receiver, encodeData=True, processedNotificationUrl="")
    post.begin_thread("t1")
    post.work()

    opened = [orjson.loads(base64.b64decode(received.json["encodedData"])) for received in receiver.got]
    assert sorted(event["type"] for event in opened) == ["comment.add", "comment_annotation.add"]


def test_protected_data_contains_no_texts_of_users(post: Post, receiver: Receiver) -> None:
    enable(post, receiver, enableDataProtection=True)
    post.begin_thread(
        "t1",
        context={"secret": "s3cret"},
        more="s3cret",
        assignedTo=BOB,
        status={"id": "open", "name": "s3cret"},
        metadata={"a": "s3cret"},
        reason="s3cret",
        priority="s3cret",
    )
    post.work()

    assert len(receiver.got) == 4
    for text in (b"Ada", b"acme.example", b"Why so late", b"s3cret", b"Bob"):
        assert text not in b"".join(received.body for received in receiver.got)
    (raw, *_) = (received.json["data"] for received in receiver.got if received.path == "/raw")
    assert raw["actionUser"] == {"userId": ADA["userId"]}
    assert raw["commentAnnotation"]["status"] == {"id": "open"}


def test_waiting_messages_are_sent_when_webhooks_are_enabled_again(post: Post, receiver: Receiver) -> None:
    enable(post, receiver)
    post.begin_thread("t1")
    post.tenant("update_webhook_config", useWebhookService=False)
    post.work()
    assert receiver.got == []
    post.clock.move_on(hours=1)

    post.tenant("update_webhook_config", useWebhookService=True)
    post.work()

    assert len(receiver.got) == 4


def test_tenants_get_their_own_events_only(post: Post, make_receiver: Callable[[], Receiver]) -> None:
    mine, theirs = make_receiver(), make_receiver()
    other = Post(post.world)
    enable(post, mine)
    enable(other, theirs)
    post.begin_thread("t1")
    post.work()
    assert len(mine.got) == 4
    assert theirs.got == []


def test_events_of_editor_data_are_sent_if_their_trigger_is_on(post: Post, receiver: Receiver) -> None:
    editor = DOCUMENT | {"editorId": "e1", "type": "text"}
    enable(post, receiver)
    post.tenant("add_crdt_data", **editor, data="a")
    enable(post, receiver, triggers={"crdt.update": True})
    post.tenant("update_crdt_data", **editor, data="b")
    post.work()

    assert {received.path for received in receiver.got} == {"/raw", "/processed"}
    for received in receiver.got:
        assert received.json["type"] == "crdt.update"
        assert received.json["data"]["editorId"] == "e1"
        assert "annotationId" not in received.json["data"]


def test_every_event_has_a_trigger() -> None:
    assert set(EVENT_KINDS) <= set(DEFAULT_TRIGGERS)
