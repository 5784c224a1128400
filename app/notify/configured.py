"""Which channels does a configuration ask for?"""

from collections.abc import Callable
from datetime import datetime

from app.notify.channel import Channel
from app.notify.mail import Mail
from app.notify.settings import NotificationSettings
from app.notify.webhook import Webhook

Clock = Callable[[], datetime]


def channels_from_settings(settings: NotificationSettings, *, clock: Clock) -> list[Channel]:
    """Those that are set up; nothing is connected yet."""
    channels: list[Channel] = []
    if settings.webhook.url:
        channels.append(Webhook(settings.webhook, timeout=settings.timeout, clock=clock))
    if settings.email.host:
        channels.append(Mail(settings.email, timeout=settings.timeout, clock=clock))
    return channels
