"""Messages to real receivers."""

import base64
import time as real_time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from standardwebhooks import Webhook as Receiving

from app.commands.doctor.channels import check_channels
from app.commands.doctor.finding import State
from app.monitoring.notify.channels import Mail, Webhook, signature
from app.monitoring.notify.concerns import Cause, Concern
from app.monitoring.notify.message import Channel, ConcernEvent, Message, NotDeliveredError, message_body
from app.monitoring.notify.settings import EmailSettings, WebhookSettings
from tests.monitoring.notify.conftest import MailServer, Receiver
from tests.worlds.clock import NOON, SimulatedTime

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes 123").decode()
PASSWORD = "TOPSECRET-PASSWORD"

HELD = Concern(
    cause=Cause.HELD,
    fingerprint="x",
    size=36,
    summary="36 deletes wait for approval: organizationUser of acme: 36 of 40 would be deleted, the limit is 20 %",
    advice="look at them with usher runs R1, then usher approve R1, or mend the directory",
    since=NOON,
    run_id="R1",
)


def message(event: ConcernEvent = ConcernEvent.BEGAN) -> Message:
    return Message("msg_1", message_body(event, HELD, NOON))


def webhook(url: str, timeout: float = 5, time: SimulatedTime | None = None) -> Webhook:
    settings = WebhookSettings.model_validate({"url": url, "secret": SECRET})
    return Webhook(settings, timeout=timeout, clock=time or SimulatedTime())


def mail(server: MailServer, certificate: Path, timeout: float = 5, **settings: object) -> Mail:
    given = {
        "host": "127.0.0.1",
        "port": server.port,
        "username": "usher",
        "password": PASSWORD,
        "ca_file": str(certificate),
        "sender": "usher@acme.example",
        "recipients": ["ops@acme.example", "ada@acme.example"],
    }
    return Mail(EmailSettings.model_validate(given | settings), timeout=timeout, clock=SimulatedTime())


def test_webhook_is_signed_as_the_specification_has_it(receiver: Receiver) -> None:
    webhook(receiver.url, time=SimulatedTime(datetime.now(UTC))).send(message())
    [posted] = receiver.posted
    # The reference implementation checks id, timestamp (within five minutes of now) and body.
    event = Receiving(SECRET).verify(posted.body, posted.headers)
    assert posted.headers["webhook-id"] == "msg_1"
    assert posted.headers["content-type"] == "application/json"
    assert event == {
        "type": "attention.began",
        "timestamp": "2026-11-20T12:00:00Z",
        "data": {
            "cause": "held",
            "summary": HELD.summary,
            "since": "2026-11-20T12:00:00Z",
            "runId": "R1",
            "count": 36,
            "advice": HELD.advice,
        },
    }


def test_trial_arrives_by_both_ways(receiver: Receiver, mail_server: MailServer, certificate: Path) -> None:
    channels: list[Channel] = [webhook(receiver.url), mail(mail_server, certificate)]
    found = list(check_channels(channels, clock=SimulatedTime(), new_id=lambda: "msg_9"))
    assert [one.state for one in found] == [State.OK, State.OK]
    assert b'"type":"attention.test"' in receiver.posted[0].body
    assert mail_server.delivered[0].letter["Subject"] == "Usher: this is a test: messages from Usher arrive here"


def test_signature_is_that_of_the_reference_implementation() -> None:
    body = '{"naïve": "ünïcode 😀"}'
    assert signature(SECRET, "msg_7", int(NOON.timestamp()), body) == Receiving(SECRET).sign("msg_7", NOON, body)


@pytest.mark.parametrize(
    ("code", "is_permanent"), [(301, False), (307, False), (404, False), (410, True), (500, False)]
)
def test_webhook_counts_as_delivered_by_a_2xx_alone(receiver: Receiver, code: int, is_permanent: bool) -> None:
    receiver.answers = [code]
    with pytest.raises(NotDeliveredError, match=str(code)) as caught:
        webhook(receiver.url).send(message())
    assert caught.value.is_permanent is is_permanent
    assert len(receiver.posted) == 1, "a redirect was followed"


def test_webhook_that_nobody_answers_fails_in_time(mail_server: MailServer, closed_port: int) -> None:
    mail_server.silent = True  # accepts, and sends nothing
    began = real_time.monotonic()
    with pytest.raises(NotDeliveredError, match="no answer within the time allowed"):
        webhook(f"http://127.0.0.1:{mail_server.port}/", timeout=0.3).send(message())
    with pytest.raises(NotDeliveredError, match=f"nothing listens at 127.0.0.1:{closed_port}"):
        webhook(f"http://127.0.0.1:{closed_port}/").send(message())
    assert real_time.monotonic() - began < 5


def test_mail_goes_out_encrypted_and_signed_in(mail_server: MailServer, certificate: Path) -> None:
    mail(mail_server, certificate).send(message())
    [got] = mail_server.delivered
    assert got.encrypted
    assert PASSWORD in base64.b64decode(got.credentials).decode()
    assert got.recipients == ["ops@acme.example", "ada@acme.example"]
    assert got.letter["Subject"] == f"Usher: {HELD.summary}"
    assert got.letter["From"] == "usher@acme.example"
    assert got.letter["Message-ID"] == "<msg_1@acme.example>"
    assert got.letter["Date"] == "Fri, 20 Nov 2026 12:00:00 +0000"
    text = got.letter.get_content()
    assert HELD.summary in text
    assert "usher approve R1" in text
    assert PASSWORD not in got.letter.as_string()


def test_mail_without_tls_is_sent_where_that_is_asked_for(mail_server: MailServer, certificate: Path) -> None:
    plain: dict[str, Any] = {"security": "none", "username": "", "password": ""}
    mail(mail_server, certificate, **plain).send(message(ConcernEvent.OVER))
    [got] = mail_server.delivered
    assert not got.encrypted
    assert got.letter["Subject"].startswith("Usher: over: 36 deletes")


def test_mail_never_falls_back_to_the_clear(mail_server: MailServer, certificate: Path) -> None:
    mail_server.refuses["STARTTLS"] = "454 not today"
    with pytest.raises(NotDeliveredError):
        mail(mail_server, certificate).send(message())
    assert mail_server.delivered == []


def test_mail_is_not_handed_to_a_server_that_cannot_be_trusted(mail_server: MailServer, certificate: Path) -> None:
    with pytest.raises(NotDeliveredError, match="is not trusted: self-signed certificate"):
        mail(mail_server, certificate, ca_file="").send(message())
    assert mail_server.delivered == []


@pytest.mark.parametrize("command", ["AUTH", "MAIL", "RCPT", "DATA"])
def test_error_of_refused_mail_contains_no_secrets(mail_server: MailServer, certificate: Path, command: str) -> None:
    mail_server.refuses[command] = f"550 no, and I repeat {PASSWORD}"
    with pytest.raises(NotDeliveredError) as caught:
        mail(mail_server, certificate).send(message())
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("wrong", [{"host": "mail..example"}, {"password": f"{PASSWORD}-é"}])
def test_mail_with_text_that_cannot_be_sent_is_not_delivered(
    mail_server: MailServer, certificate: Path, wrong: dict[str, Any]
) -> None:
    with pytest.raises(NotDeliveredError, match="has characters that cannot be sent") as caught:
        mail(mail_server, certificate, **wrong).send(message())
    assert PASSWORD not in str(caught.value)


def test_silent_mail_server_fails_in_time(mail_server: MailServer, certificate: Path) -> None:
    mail_server.silent = True
    began = real_time.monotonic()
    with pytest.raises(NotDeliveredError, match="could not be used"):
        mail(mail_server, certificate, timeout=0.3).send(message())
    assert real_time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (WebhookSettings, {"url": "https://x.example"}),
        (WebhookSettings, {"url": "https://me:TOPSECRET@x.example", "secret": SECRET}),
        (WebhookSettings, {"url": "ftp://x.example", "secret": SECRET}),
        (WebhookSettings, {"url": "https://x.example", "secret": "whsec_TOPSECRET"}),
        (WebhookSettings, {"url": "https://x.example", "secret": "TOPSECRET no base64"}),
        (WebhookSettings, {"url": "https://x.example", "secret": "whsec_TOPSECRET-é"}),
        (EmailSettings, {"host": "mail.example"}),
        (
            EmailSettings,
            {"host": "mail.example", "sender": "a@x.example", "recipients": ["b@x.example"], "password": "TOPSECRET"},
        ),
        (EmailSettings, {"host": "mail.example", "sender": "a@x.example", "recipients": ["nobody"]}),
        (EmailSettings, {"host": "mail.example", "sender": "a@x.example", "recipients": ["a@b@x.example"]}),
        (EmailSettings, {"host": "mail.example", "sender": "a@x.example\r\nBcc: b@x", "recipients": ["b@x.example"]}),
        (
            EmailSettings,
            {
                "host": "mail.example",
                "sender": "a@x.example",
                "recipients": ["b@x.example"],
                "security": "none",
                "username": "me",
                "password": "TOPSECRET",
            },
        ),
    ],
)
def test_settings_that_cannot_work_are_refused_without_showing_secrets(
    model: type[WebhookSettings | EmailSettings], given: dict[str, object]
) -> None:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(given)
    assert "TOPSECRET" not in str(caught.value)
    assert "ASCII" not in str(caught.value), "an error of the base64 module"
