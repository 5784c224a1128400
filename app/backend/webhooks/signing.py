"""The signature of a webhook, after the Standard Webhooks specification: it comes from here."""

import base64
import random
from datetime import datetime

from standardwebhooks import Webhook

_PREFIX = "whsec_"
_BYTES = 32

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"


def new_secret(entropy: random.Random) -> str:
    """A secret of an endpoint's own."""
    return _PREFIX + base64.b64encode(entropy.randbytes(_BYTES)).decode()


def naming_headers(message_id: str, moment: datetime) -> dict[str, str]:
    """What tells a receiver which message this is (the same at every attempt) and when it was sent."""
    return {ID_HEADER: message_id, TIMESTAMP_HEADER: str(int(moment.timestamp()))}


def signed_headers(secret: str, message_id: str, moment: datetime, body: bytes) -> dict[str, str]:
    """The same, with the signature over them and the body."""
    signature = Webhook(secret).sign(message_id, moment, body.decode())
    return naming_headers(message_id, moment) | {SIGNATURE_HEADER: signature}
