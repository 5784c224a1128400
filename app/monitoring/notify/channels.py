"""Creates the configured notification channels."""

from app.foundation.clock import Clock
from app.monitoring.notify.mail import Mail
from app.monitoring.notify.message import Channel
from app.monitoring.notify.settings import NotificationSettings
from app.monitoring.notify.webhook import Webhook


def channels_from_settings(settings: NotificationSettings, *, clock: Clock) -> list[Channel]:
    """The configured channels. Connections are opened when messages are sent."""
    channels: list[Channel] = []
    if settings.webhook.url:
        channels.append(Webhook(settings.webhook, timeout=settings.timeout, clock=clock))
    if settings.email.host:
        channels.append(Mail(settings.email, timeout=settings.timeout, clock=clock))
    return channels
