"""The channels that deliver messages: a webhook and e-mail.

The webhook is signed as Standard Webhooks specifies: the signature is ``v1,`` and the base64 of an HMAC-SHA256 over
``id.timestamp.body``. Headers contain the id and the timestamp, so that receivers can refuse replays.
"""

import base64
import hashlib
import hmac
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import format_datetime

import requests

from app.foundation.clock import Clock
from app.foundation.outbound.failure import CALL_ERRORS, failure_of, refused_by_proxy
from app.foundation.outbound.probe import probed_failure_of
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import session_for
from app.foundation.outbound.urls import bracketed
from app.foundation.text import printable
from app.monitoring.notify.message import Channel, ConcernEvent, Message, NotDeliveredError
from app.monitoring.notify.settings import EmailSettings, NotificationSettings, WebhookSettings, secret_bytes


def signature(secret: str, message_id: str, timestamp: int, body: str) -> str:
    """The value of the header ``webhook-signature``. ``timestamp`` is in epoch seconds."""
    signed = f"{message_id}.{timestamp}.{body}".encode()
    digest = hmac.new(secret_bytes(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


class Webhook:
    """Posts messages to one URL. It follows no redirects and does not read the response's body."""

    name = "webhook"

    def __init__(self, settings: WebhookSettings, *, timeout: float, clock: Clock) -> None:
        self._settings = settings
        self._timeout = timeout
        self._clock = clock
        self._route = Route(settings.ca_file, settings.proxy)

    def send(self, message: Message) -> None:
        timestamp = int(self._clock().timestamp())
        secret = self._settings.secret.get_secret_value()
        headers = {
            "content-type": "application/json",
            "user-agent": "usher",
            "webhook-id": message.message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature(secret, message.message_id, timestamp, message.body),
        }
        url = self._settings.url
        # The session ignores proxies and passwords from the environment.
        with session_for(self._route) as session:
            try:
                with session.post(
                    url,
                    data=message.body.encode(),
                    headers=headers,
                    timeout=self._timeout,
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    code = response.status_code
            except CALL_ERRORS as error:
                failure = probed_failure_of(error, url, self._route)
                raise NotDeliveredError(failure.message, failure=failure) from error
        if refused := refused_by_proxy(code, self._route):
            raise NotDeliveredError(refused.message, failure=refused)
        if not 200 <= code < 300:
            raise NotDeliveredError(f"answered with {code}", is_permanent=code == requests.codes.gone)


_SUBJECT_LIMIT = 120


class Mail:
    """Sends messages through one mail server, with a connection for each message."""

    name = "email"

    def __init__(self, settings: EmailSettings, *, timeout: float, clock: Clock) -> None:
        self._settings = settings
        self._timeout = timeout
        self._clock = clock

    def send(self, message: Message) -> None:
        email = self.email(message)
        try:
            with self._connection() as server:
                if self._settings.username:
                    server.login(self._settings.username, self._settings.password.get_secret_value())
                server.send_message(email)
        except smtplib.SMTPResponseException as error:
            # Only the code is reported: the server's text may repeat parts of the message.
            raise NotDeliveredError(f"the mail server answered {error.smtp_code}") from error
        except smtplib.SMTPNotSupportedError as error:
            raise NotDeliveredError(
                f"the mail server does not support this: {printable(str(error), limit=200)}"
            ) from error
        except UnicodeError:
            # The error contains the text, which may be the password.
            problem = "the host, the user name or the password of the mail server has characters that cannot be sent"
            raise NotDeliveredError(problem) from None
        except (smtplib.SMTPException, OSError) as error:
            failure = failure_of(error, f"smtp://{bracketed(self._settings.host)}:{self._settings.port}")
            raise NotDeliveredError(f"the mail server could not be used: {failure.message}", failure=failure) from error

    def email(self, message: Message) -> EmailMessage:
        content = message.content
        data = content["data"]
        email = EmailMessage()
        email["From"] = self._settings.sender
        email["To"] = ", ".join(self._settings.recipients)
        email["Subject"] = printable(f"Usher: {data['summary']}", limit=_SUBJECT_LIMIT)
        email["Date"] = format_datetime(self._clock())
        # The same id for each try, so that mail clients recognize duplicates.
        email["Message-ID"] = f"<{message.message_id}@{self._settings.sender.rpartition('@')[2]}>"
        email["Auto-Submitted"] = "auto-generated"
        lines = [data["summary"], ""]
        if content["type"] != ConcernEvent.OVER:
            lines += [f"What to do: {data['advice']}", ""]
        lines += [f"Since:  {data['since']}"]
        if "runId" in data:
            lines += [f"Run:    {data['runId']}"]
        email.set_content("\n".join(lines) + "\n")
        return email

    def _connection(self) -> smtplib.SMTP:
        settings = self._settings
        if settings.security == "none":
            return smtplib.SMTP(settings.host, settings.port, timeout=self._timeout)
        trusted = ssl.create_default_context(cafile=settings.ca_file or None)
        if settings.security == "tls":
            return smtplib.SMTP_SSL(settings.host, settings.port, timeout=self._timeout, context=trusted)
        server = smtplib.SMTP(settings.host, settings.port, timeout=self._timeout)
        try:
            server.starttls(context=trusted)
        except BaseException:
            server.close()
            raise
        return server


def channels_from_settings(settings: NotificationSettings, *, clock: Clock) -> list[Channel]:
    """The configured channels. Connections are opened when messages are sent."""
    channels: list[Channel] = []
    if settings.webhook.url:
        channels.append(Webhook(settings.webhook, timeout=settings.timeout, clock=clock))
    if settings.email.host:
        channels.append(Mail(settings.email, timeout=settings.timeout, clock=clock))
    return channels
