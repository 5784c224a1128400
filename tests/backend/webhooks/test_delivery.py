import itertools
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import orjson
import pytest
import svix.webhooks
from sqlalchemy import select, text, update
from standardwebhooks import Webhook, WebhookVerificationError

from app.backend.webhooks import queues
from app.backend.webhooks.sender import Outcome
from app.backend.webhooks.tables import (
    ADVANCED_WEBHOOK_CONFIG,
    WEBHOOK_DELIVERY,
    WEBHOOK_MESSAGE,
    WEBHOOK_QUEUE,
)
from app.foundation.database.engine import writing
from tests.worlds.clock import SimulatedTime

from .conftest import DOCUMENT, Post, Receiver, take_turn
from .test_basic import PUBLIC_KEY, decrypted

RETRIES_AFTER = [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]


@pytest.fixture
def endpoint(post: Post, receiver: Receiver) -> str:
    post.enable()
    return post.endpoint(receiver.url)


@pytest.fixture
def today(post: Post) -> None:
    """Receivers compare the time of a message with their own clock."""
    post.clock.now = post.clock.now.now(post.clock.now.tzinfo)


@pytest.mark.usefixtures("today")
def test_receivers_can_verify_the_signature(post: Post, receiver: Receiver, endpoint: str) -> None:
    post.begin_thread("t1")
    post.work()

    secret = post.secret(endpoint)
    assert len(receiver.got) == 2
    for received in receiver.got:
        event = Webhook(secret).verify(received.body, received.headers)
        assert event == received.json
        svix.webhooks.Webhook(secret).verify(received.body, received.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(received.body.replace(b"acme", b"acmf"), received.headers)
        with pytest.raises(WebhookVerificationError):
            Webhook(secret).verify(received.body, received.headers | {"webhook-id": "msg_other"})
        assert received.headers["content-type"] == "application/json"
        assert "authorization" not in received.headers
    assert [received.json["type"] for received in receiver.got] == ["comment_annotation.add", "comment.add"]
    assert post.states() == [("delivered", 1)] * 2


@pytest.mark.usefixtures("today")
def test_the_signature_covers_the_encrypted_body(post: Post, receiver: Receiver, endpoint: str) -> None:
    post.enable(encryptData=True, publicKey=PUBLIC_KEY)
    post.begin_thread("t1")
    post.work()

    for received in receiver.got:
        body = Webhook(post.secret(endpoint)).verify(received.body, received.headers)
        assert orjson.loads(decrypted(body["encryptedData"]))["data"]["annotationId"] == "t1"


def test_endpoints_get_the_events_that_their_filters_accept(post: Post, receiver: Receiver) -> None:
    post.enable()
    wanted: dict[str, dict[str, Any]] = {
        "all": {},
        "types": {"filterTypes": ["comment.add", "comment.delete"]},
        "other types": {"filterTypes": ["comment.delete"]},
        "organization": {"channels": ["elsewhere", "organization:acme"]},
        "document": {"channels": ["document:roadmap"]},
        "own": {"channels": ["urgent"]},
        "other channels": {"channels": ["document:acme", "organization:roadmap", "acme"]},
        "both": {"channels": ["document:roadmap"], "filterTypes": ["comment_annotation.add"]},
        "disabled": {"disabled": True},
    }
    for name, fields in wanted.items():
        post.endpoint(f"{receiver.url}/{name.replace(' ', '-')}", **fields)
    post.begin_thread("t1", context={"channels": ["urgent", 7]})
    post.work()

    got: dict[str, list[str]] = {}
    for received in receiver.got:
        got.setdefault(received.path[1:], []).append(received.json["type"])
    both = ["comment_annotation.add", "comment.add"]
    assert got == {
        "all": both,
        "types": both[1:],
        "organization": both,
        "document": both,
        "own": both,
        "both": both[:1],
    }
    # One message per event, for all targets.
    assert len(set(receiver.ids)) == 2


def test_a_failed_change_sends_nothing(post: Post, receiver: Receiver, endpoint: str) -> None:
    post.tenant.refused("add_comment_annotations", **DOCUMENT, commentAnnotations=[{"commentData": []}])
    post.work()
    assert receiver.got == []
    with post.world.engine.connect() as connection:
        assert connection.execute(select(WEBHOOK_MESSAGE)).all() == []


def test_retries_have_growing_delays_and_the_same_id(post: Post, receiver: Receiver, endpoint: str) -> None:
    receiver.code = 500
    post.tenant("update_advanced_webhook_endpoint", endpointId=endpoint, filterTypes=["comment.add"])
    post.begin_thread("t1")
    post.work_for(hours=100, step=240)

    assert len(receiver.got) == 10
    assert len(set(receiver.ids)) == 1
    assert len({received.body for received in receiver.got}) == 1
    at = [int(received.headers["webhook-timestamp"]) for received in receiver.got]
    gaps = [later - earlier for earlier, later in itertools.pairwise(at)]
    for gap, least in zip(gaps, RETRIES_AFTER, strict=True):
        assert least <= gap <= least * 1.2 + 300, gaps
    assert sum(gaps) > timedelta(days=2.5).total_seconds()
    assert post.states() == [("failed", 10)]


def test_a_recovered_receiver_gets_every_message_once(post: Post, receiver: Receiver, endpoint: str) -> None:
    receiver.code = 503
    for number in range(3):
        post.begin_thread(f"t{number}")
    post.work()
    assert post.states().count(("waiting", 1)) >= 1
    refused = len(receiver.got)
    receiver.code = 204
    post.work_for(hours=1, step=10)

    assert [state for state, _ in post.states()] == ["delivered"] * 6
    assert len(set(receiver.ids[refused:])) == len(receiver.ids[refused:]) == 6


@pytest.mark.parametrize("code", [301, 302, 307, 400, 404, 429])
def test_other_statuses_than_2xx_fail_and_redirects_are_not_followed(
    post: Post, receiver: Receiver, endpoint: str, code: int
) -> None:
    receiver.code = code
    receiver.answer_headers = {"Location": f"{receiver.url}/elsewhere"}
    post.begin_thread("t1")
    post.work()
    assert {received.path for received in receiver.got} == {"/"}
    assert {state for state, _ in post.states()} == {"waiting"}


@pytest.mark.parametrize("is_date", [False, True])
def test_retry_after_delays_the_next_attempt(post: Post, receiver: Receiver, endpoint: str, is_date: bool) -> None:
    moment = format_datetime(post.clock.now + timedelta(hours=2), usegmt=True)
    receiver.code, receiver.answer_headers = 429, {"Retry-After": moment if is_date else "7200"}
    post.begin_thread("t1")
    post.work_for(hours=1.9)
    assert len(receiver.got) == 2
    assert len(set(receiver.ids)) == 2
    post.work_for(hours=0.3)
    # A date in the past does not delay further attempts.
    assert len(receiver.got) == (6 if is_date else 4)


def test_a_failing_endpoint_is_disabled_and_reported(
    post: Post, receiver: Receiver, make_receiver: Callable[[], Receiver], endpoint: str
) -> None:
    other, elsewhere = make_receiver(), make_receiver()
    post.endpoint(other.url)
    post.endpoint(elsewhere.url, filterTypes=["comment.add"])
    receiver.code = 500
    post.begin_thread("t1")
    post.work_for(hours=24 * 2, step=600)
    (record, *_) = post.tenant("list_advanced_webhook_endpoints")["endpoints"]
    assert not record["disabled"]
    post.work_for(hours=24 * 3, step=600)

    (record,) = (
        listed for listed in post.tenant("list_advanced_webhook_endpoints")["endpoints"] if listed["id"] == endpoint
    )
    assert record["disabled"]
    assert record["disabledReason"] == "failing"
    (report,) = (received.json for received in other.got if received.json["type"] == "webhook_endpoint.disabled")
    assert report["data"]["endpointId"] == endpoint
    assert {received.json["type"] for received in elsewhere.got} == {"comment.add"}
    before = len(receiver.got)
    post.begin_thread("t2")
    post.work_for(hours=24, step=600)
    assert len(receiver.got) == before

    receiver.code = 200
    record = post.tenant("update_advanced_webhook_endpoint", endpointId=endpoint, disabled=False)
    assert "disabledReason" not in record
    post.begin_thread("t3")
    post.work_for(hours=1)
    assert {received.json["data"]["annotationId"] for received in receiver.got[before:]} <= {"t1", "t3"}
    assert len([received for received in receiver.got[before:] if received.json["data"]["annotationId"] == "t3"]) == 2


def test_enabling_an_endpoint_resets_its_failures(post: Post, receiver: Receiver, endpoint: str) -> None:
    receiver.code = 500
    post.begin_thread("t1")
    post.work_for(hours=24 * 4, step=600)
    assert post.tenant("list_advanced_webhook_endpoints")["endpoints"][0]["disabled"]
    before = len(receiver.got)
    post.tenant("update_advanced_webhook_endpoint", endpointId=endpoint, disabled=False)
    post.begin_thread("t2")
    post.work_for(hours=20, step=600)
    assert len(receiver.got) > before
    assert not post.tenant("list_advanced_webhook_endpoints")["endpoints"][0]["disabled"]
    post.work_for(hours=24 * 4, step=600)
    assert post.tenant("list_advanced_webhook_endpoints")["endpoints"][0]["disabled"]


def test_recording_an_attempt_is_retried(post: Post, receiver: Receiver, endpoint: str) -> None:
    post.tenant("update_advanced_webhook_endpoint", endpointId=endpoint, filterTypes=["comment.add"])
    table = text("ALTER TABLE webhook_delivery RENAME TO moved")
    back = text("ALTER TABLE moved RENAME TO webhook_delivery")

    def take_away(_: Any) -> None:
        with writing(post.world.engine) as connection:
            connection.execute(table)

    def bring_back(seconds: float) -> None:
        if post.naps:
            return
        post.naps.append(seconds)
        with writing(post.world.engine) as connection:
            connection.execute(back)

    receiver.on_request = take_away
    post.begin_thread("t1")
    post.work(sleep=bring_back)
    assert len(post.naps) == len(receiver.got) == 1
    assert post.states() == [("delivered", 1)]


def test_an_endpoint_that_accepts_other_messages_is_not_disabled(post: Post, receiver: Receiver, endpoint: str) -> None:
    def judge(received: Any) -> None:
        receiver.code = 500 if received.json["data"]["annotationId"] == "bad" else 200

    receiver.on_request = judge
    post.begin_thread("bad")
    post.work_for(hours=30, step=600)
    post.begin_thread("good")
    post.work_for(hours=24 * 4, step=600)
    assert sorted(post.states()) == [("delivered", 1)] * 2 + [("failed", 10)] * 2
    assert not post.tenant("list_advanced_webhook_endpoints")["endpoints"][0]["disabled"]


def test_status_410_disables_an_endpoint_at_once(post: Post, receiver: Receiver, endpoint: str) -> None:
    receiver.code = 410
    post.begin_thread("t1")
    post.work_for(hours=1)
    assert len(receiver.got) == 1
    (record,) = post.tenant("list_advanced_webhook_endpoints")["endpoints"]
    assert (record["disabled"], record["disabledReason"]) == (True, "gone")


def test_the_rate_limit_holds_across_turns(post: Post, receiver: Receiver, endpoint: str) -> None:
    post.tenant("update_advanced_webhook_endpoint", endpointId=endpoint, rateLimit=3)
    at: list[float] = []
    receiver.on_request = lambda _: at.append(post.clock.now.timestamp())
    for number in range(25):
        post.begin_thread(f"t{number}")
    while len(at) < 50:
        post.work()
        post.clock.move_on(milliseconds=50)

    assert all(later - earlier >= 1 for earlier, later in zip(at, at[3:], strict=False))
    # As fast as the limit allows, except for a second between two turns.
    assert at[-1] - at[0] < 50 / 3 + 4


@pytest.mark.extended
def test_the_rate_limit_holds_by_the_clock_of_the_receiver(post: Post, receiver: Receiver, endpoint: str) -> None:
    post.tenant("update_advanced_webhook_endpoint", endpointId=endpoint, rateLimit=5)
    at: list[float] = []
    receiver.on_request = lambda _: at.append(time.monotonic())
    for number in range(6):
        post.begin_thread(f"t{number}")

    def now() -> datetime:
        return datetime.now(UTC)

    post.clock.now = now()
    worker = post.worker(clock=now, sleep=time.sleep)
    with writing(post.world.engine) as connection:
        connection.execute(update(WEBHOOK_DELIVERY).values(due_at=0))
        connection.execute(update(WEBHOOK_QUEUE).values(due_at=0, not_before=0))
    assert take_turn(worker)

    assert len(at) == 12
    assert all(later - earlier >= 1 for earlier, later in zip(at, at[5:], strict=False))


def test_a_crash_before_recording_repeats_the_message_with_its_id(
    post: Post, receiver: Receiver, endpoint: str
) -> None:
    post.tenant("update_advanced_webhook_endpoint", endpointId=endpoint, filterTypes=["comment.add"])
    real = post.worker().send

    class PowerCut(BaseException):
        pass

    def send_and_die(*arguments: Any) -> Outcome:
        real(*arguments)
        raise PowerCut

    post.begin_thread("t1")
    with pytest.raises(PowerCut):
        take_turn(post.worker(send=send_and_die))
    assert post.states() == [("waiting", 0)]

    post.work()
    assert len(receiver.got) == 1, "the lease still runs"
    post.clock.move_on(seconds=queues.LEASE_MS / 1000 + 1)
    post.work()

    assert len(receiver.got) == 2
    assert len(set(receiver.ids)) == 1
    assert post.states() == [("delivered", 1)]


def test_a_worker_without_its_lease_does_not_disturb_the_next_one(
    post: Post, receiver: Receiver, endpoint: str
) -> None:
    post.tenant("update_advanced_webhook_endpoint", endpointId=endpoint, filterTypes=["comment.add"])
    real = post.worker().send

    def send_for_ever(*arguments: Any) -> Outcome:
        post.clock.move_on(seconds=queues.LEASE_MS / 1000 + 1)
        post.work()
        return real(*arguments)

    post.begin_thread("t1")
    take_turn(post.worker(send=send_for_ever))
    assert len(set(receiver.ids)) == 1
    assert post.states() == [("delivered", 1)]
    with post.world.engine.connect() as connection:
        (queue,) = connection.execute(select(WEBHOOK_QUEUE)).all()
    assert (queue.holder, queue.due_at) == ("", None)


def test_concurrent_workers_send_every_message_once(post: Post, make_receiver: Callable[[], Receiver]) -> None:
    receivers = [make_receiver() for _ in range(3)]
    post.enable()
    for target in receivers:
        post.endpoint(target.url)
    crossed: list[str] = []
    inside: dict[str, int] = {}
    lock = threading.Lock()

    def watch(target: Receiver) -> Callable[[Any], None]:
        def on_request(_: Any) -> None:
            with lock:
                inside[target.url] = inside.get(target.url, 0) + 1
                if inside[target.url] > 1:
                    crossed.append(target.url)
            time.sleep(0.005)
            with lock:
                inside[target.url] -= 1

        return on_request

    for target in receivers:
        target.on_request = watch(target)
    stop = threading.Event()
    clock = SimulatedTime()
    workers = [
        threading.Thread(target=post.worker(clock=clock, sleep=lambda _: None).run, args=(stop,)) for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    # Events arrive while the workers run.
    for number in range(20):
        post.begin_thread(f"t{number}")
        clock.move_on(milliseconds=1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(state == "waiting" for state, _ in post.states()):
        clock.move_on(milliseconds=1)
        time.sleep(0.05)
    stop.set()
    for worker in workers:
        worker.join(30)
        assert not worker.is_alive()

    assert post.states() == [("delivered", 1)] * 120
    for target in receivers:
        assert len(target.ids) == len(set(target.ids)) == 40
    assert crossed == []


def test_a_receiver_that_is_down_does_not_delay_others(post: Post, receiver: Receiver, closed_port: str) -> None:
    post.enable()
    post.endpoint(closed_port)
    post.endpoint(receiver.url)
    for number in range(10):
        post.begin_thread(f"t{number}")
    worker = post.worker()
    for _ in range(2):
        assert take_turn(worker)
    assert len(receiver.got) == 20
    assert post.attempts() == 21


def test_new_events_do_not_end_a_pause(post: Post, closed_port: str) -> None:
    post.enable()
    post.endpoint(closed_port)
    for number in range(5):
        post.begin_thread(f"t{number}")
        post.work()
    assert post.attempts() == 1
    post.work_for(hours=0.1, step=1)
    # 1, 2, 4, … seconds apart.
    assert post.attempts() < 12


def test_idle_workers_only_read(post: Post, receiver: Receiver, endpoint: str) -> None:
    post.begin_thread("t1")
    post.work()
    worker = post.worker()
    assert not take_turn(worker)
    with writing(post.world.engine):
        # A write would wait here on SQLite.
        started = time.monotonic()
        assert not take_turn(worker)
        assert time.monotonic() - started < 2


def test_a_stopped_worker_finishes_its_request(post: Post, receiver: Receiver, endpoint: str) -> None:
    for number in range(5):
        post.begin_thread(f"t{number}")
    stop = threading.Event()
    receiver.on_request = lambda _: stop.set()
    post.worker().run(stop)
    assert len(receiver.got) == 1
    assert sorted(post.states()) == [("delivered", 1)] + [("waiting", 0)] * 9
    receiver.on_request = lambda _: None
    # The queue was released.
    post.work()
    assert len(receiver.got) == len(set(receiver.ids)) == 10


def test_old_messages_are_deleted(post: Post, receiver: Receiver, endpoint: str) -> None:
    post.begin_thread("t1")
    post.work()
    post.clock.move_on(days=29)
    post.begin_thread("t2")
    post.work()
    post.clock.move_on(days=2)
    worker = post.worker()
    while worker.tidy():
        pass
    with post.world.engine.connect() as connection:
        for table in (WEBHOOK_MESSAGE, WEBHOOK_DELIVERY):
            assert len(connection.execute(select(table)).all()) == 2


def test_an_unusable_key_sends_nothing(post: Post, receiver: Receiver, endpoint: str) -> None:
    with writing(post.world.engine) as connection:
        connection.execute(update(ADVANCED_WEBHOOK_CONFIG).values(encrypt_data=True, public_key="broken"))
    post.begin_thread("t1")
    post.work()
    assert receiver.got == []
    assert post.attempts() == 1
