"""The channels that a configuration asks for."""

from app.clock import Clock
from app.notify.channel import Channel
from app.notify.mail import Mail
from app.notify.settings import NotificationSettings
from app.notify.webhook import Webhook


def channels_from_settings(settings: NotificationSettings, *, clock: Clock) -> list[Channel]:
    """Those that are set up; nothing is connected yet."""
    channels: list[Channel] = []
    if settings.webhook.url:
        channels.append(Webhook(settings.webhook, timeout=settings.timeout, clock=clock))
    if settings.email.host:
        channels.append(Mail(settings.email, timeout=settings.timeout, clock=clock))
    return channels
