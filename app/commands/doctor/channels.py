"""Checks the notification channels by sending a test message."""

from collections.abc import Callable, Sequence

from app.commands.doctor.finding import Findings, ok, problem
from app.foundation.clock import Clock
from app.foundation.outbound.failure import FailureKind
from app.monitoring.notify.message import Channel, Message, NotDeliveredError, trial_body

_MAIL_SECURITY = "check notifications.email.port and security: tls is for port 465, starttls for the others"

_SET_CA_FILE = "set notifications.email.ca_file to a PEM file with certificates"

_MAIL_ADVICE = {
    FailureKind.UNRESOLVED: "check the spelling of notifications.email.host, and that this machine can resolve it",
    FailureKind.UNTRUSTED: "set notifications.email.ca_file to a PEM file with the certificate of its issuer",
    FailureKind.WRONG_HOST: "set notifications.email.host to the host that the certificate is for",
    FailureKind.EXPIRED: "renew the certificate of the mail server",
    FailureKind.CA_FILE_UNUSABLE: _SET_CA_FILE,
    FailureKind.CA_FILE_MISSING: _SET_CA_FILE,
    FailureKind.NOT_TLS: _MAIL_SECURITY,
    FailureKind.HANDSHAKE: _MAIL_SECURITY,
    FailureKind.RESPONSE_TIMEOUT: _MAIL_SECURITY,
}


def check_channels(channels: Sequence[Channel], *, clock: Clock, new_id: Callable[[], str]) -> Findings:
    """Sends one message through each channel, without retries."""
    for channel in channels:
        try:
            channel.send(Message(new_id(), trial_body(clock())))
        except NotDeliveredError as error:
            yield problem("notifications", f"{channel.name}: {error}", _advice(channel.name, error))
        else:
            yield ok("notifications", f"{channel.name}: a test message was accepted; check that it arrives")


def _advice(channel: str, error: NotDeliveredError) -> str:
    if error.failure is None:
        return f"check notifications.{channel}, and that the server there accepts messages"
    if channel == "webhook":
        return error.failure.advice(address="notifications.webhook.url", section="notifications.webhook")
    default = "check the host and port in notifications.email, and that the mail server runs"
    return _MAIL_ADVICE.get(error.failure.kind, default)
