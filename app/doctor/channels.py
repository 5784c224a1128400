"""Do messages arrive, where they are set up? The one look that does something: it sends one."""

from collections.abc import Callable, Sequence
from datetime import datetime

from app.doctor.finding import Findings, ok, problem
from app.notify.channel import Channel, NotDeliveredError
from app.notify.message import Message, trial_body

Clock = Callable[[], datetime]


def try_channels(channels: Sequence[Channel], *, clock: Clock, new_id: Callable[[], str]) -> Findings:
    """Sends a message along each, once."""
    for channel in channels:
        try:
            channel.send(Message(new_id(), trial_body(clock())))
        except NotDeliveredError as error:
            advice = f"see that notifications.{channel.name} is right and that this machine may connect there"
            yield problem("notifications", f"{channel.name}: {error}", advice)
        else:
            yield ok("notifications", f"{channel.name}: a test message was taken; see that it arrives")
