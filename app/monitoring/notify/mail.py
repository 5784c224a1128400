"""The e-mail channel: sends messages through a mail server over SMTP."""

import smtplib
import ssl
from email.message import EmailMessage
from email.utils import format_datetime

from app.foundation.clock import Clock
from app.foundation.outbound.failure import CallFailure, failure_of
from app.foundation.text import printable
from app.monitoring.notify.message import ConcernEvent, Message, NotDeliveredError
from app.monitoring.notify.settings import EmailSettings

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
        except (smtplib.SMTPException, OSError) as error:
            failure = self._failure(error)
            raise NotDeliveredError(f"the mail server could not be used: {failure.message}", failure=failure) from error

    def email(self, message: Message) -> EmailMessage:
        """The message as an e-mail."""
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

    def _failure(self, error: Exception) -> CallFailure:
        host, port = self._settings.host, self._settings.port
        return failure_of(error, f"smtp://{f'[{host}]' if ':' in host else host}:{port}")

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
