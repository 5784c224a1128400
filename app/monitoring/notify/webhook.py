"""The webhook channel: posts signed messages to a URL, as Standard Webhooks specifies.

The signature is ``v1,`` and the base64 of an HMAC-SHA256 over ``id.timestamp.body``. Headers contain the id and the
timestamp, so that receivers can refuse replays.
"""

import base64
import hashlib
import hmac

import requests
from urllib3.exceptions import HTTPError as PoolError

from app.foundation.clock import Clock
from app.foundation.outbound.failure import FailureKind, call_failure
from app.foundation.outbound.probe import probed_failure_of
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import session_for
from app.monitoring.notify.message import Message, NotDeliveredError
from app.monitoring.notify.settings import WebhookSettings, secret_bytes

_PROXY_AUTHENTICATION_REQUIRED = 407


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
            except (requests.RequestException, PoolError, OSError) as error:
                failure = probed_failure_of(error, url, self._route)
                raise NotDeliveredError(failure.message, failure=failure) from error
        if code == _PROXY_AUTHENTICATION_REQUIRED and self._route.proxy_address:
            failure = call_failure(FailureKind.PROXY_CREDENTIALS, self._route.proxy_address)
            raise NotDeliveredError(failure.message, failure=failure)
        if not 200 <= code < 300:
            raise NotDeliveredError(f"answered with {code}", hopeless=code == requests.codes.gone)
