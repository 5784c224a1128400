"""The check of channels: whether messages arrive. The one look that does something: it sends one."""

from collections.abc import Callable, Sequence

from app.commands.doctor.finding import Findings, ok, problem
from app.foundation.clock import Clock
from app.foundation.outbound.failure import FailureKind, advice
from app.monitoring.notify.message import Channel, Message, NotDeliveredError, trial_body


def try_channels(channels: Sequence[Channel], *, clock: Clock, new_id: Callable[[], str]) -> Findings:
    """Sends a message along each, once."""
    for channel in channels:
        try:
            channel.send(Message(new_id(), trial_body(clock())))
        except NotDeliveredError as error:
            yield problem("notifications", f"{channel.name}: {error}", _advice(channel.name, error))
        else:
            yield ok("notifications", f"{channel.name}: a test message was taken; see that it arrives")


def _advice(channel: str, error: NotDeliveredError) -> str:
    if error.failure is None:
        return f"see that notifications.{channel} is right and that what answers there takes messages"
    if channel == "webhook":
        return advice(error.failure, address="notifications.webhook.url", section="notifications.webhook")
    return _MAIL_ADVICE.get(
        error.failure.kind, "see that notifications.email names the right host and port, and that the mail server runs"
    )


_WRONG_SECURITY = "see that notifications.email.port and security fit: tls is for port 465, starttls for the others"

_MAIL_ADVICE = {
    FailureKind.NAME: "see that notifications.email.host is spelt right and that this machine's name server knows it",
    FailureKind.UNTRUSTED: "name a PEM file with the certificate of whoever signed it in notifications.email.ca_file",
    FailureKind.OTHER_NAME: "let notifications.email.host name the host that the certificate is for",
    FailureKind.EXPIRED: "have the mail server's certificate renewed",
    FailureKind.CA_FILE: "let notifications.email.ca_file name a PEM file with certificates",
    FailureKind.NO_TLS: _WRONG_SECURITY,
    FailureKind.HANDSHAKE: _WRONG_SECURITY,
    FailureKind.SILENT: _WRONG_SECURITY,
}
