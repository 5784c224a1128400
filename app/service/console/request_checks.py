"""Checks of every request before its page is called: a free slot, and for forms the type, the size and the origin."""

from collections.abc import Mapping
from contextlib import ExitStack
from threading import BoundedSemaphore
from urllib.parse import urlsplit

from flask import g, request
from werkzeug.exceptions import Forbidden, RequestEntityTooLarge, ServiceUnavailable, UnsupportedMediaType

from app.access.index.turns import DatabaseTurns

MAX_FORM_BYTES = 64 * 1024

_SLOT_TIMEOUT = 2.0
"""Seconds that a request waits for a slot."""
_FORM_TYPE = "application/x-www-form-urlencoded"
_FILES_TYPE = "multipart/form-data"


class RequestSlots:
    """Each request occupies one of few slots, so that pages never take all threads from permission calls."""

    def __init__(self, slots: int, turns: DatabaseTurns | None) -> None:
        """``turns``: each request takes one of them as well. None: they are not limited."""
        self._slots = BoundedSemaphore(max(1, slots))
        self._turns = turns

    def enter(self) -> None:
        """Takes a slot for the request. Raises ``ServiceUnavailable``."""
        responds = self._turns is None or self._turns.responds()
        if not self._slots.acquire(timeout=_SLOT_TIMEOUT if responds else 0):
            raise ServiceUnavailable("too many pages are loading; permission calls take precedence; try again later")
        g.console_slot = slot = ExitStack()
        slot.callback(self._slots.release)
        # A request that waits for a slot holds no turn: the other requests of the service need it.
        if self._turns is not None and request.endpoint != "console.asset":
            slot.enter_context(self._turns.take())

    def leave(self, _error: BaseException | None) -> None:
        """Releases the slot of the request, if it has one."""
        if (slot := g.pop("console_slot", None)) is not None:
            slot.close()

    @property
    def is_entered(self) -> bool:
        return "console_slot" in g


class FormPolicy:
    """The conditions of a form: its type and size, and that a page of this console sent it."""

    def __init__(self, public_url: str, upload_limits: Mapping[str, int]) -> None:
        """``upload_limits``: the endpoints of forms with files → the limit of their bodies in bytes."""
        self._public_url = public_url
        self._upload_limits = upload_limits

    def check(self) -> None:
        """Limits the body of the request, which is read later, and checks the headers of a POST."""
        limit = self._upload_limits.get(request.endpoint or "", MAX_FORM_BYTES)
        request.max_content_length = limit
        if request.method != "POST":
            return
        form_type = _FILES_TYPE if request.endpoint in self._upload_limits else _FORM_TYPE
        if request.mimetype != form_type:
            raise UnsupportedMediaType(f"send a form ({form_type})")
        if request.content_length is not None and request.content_length > limit:
            raise RequestEntityTooLarge(f"the form is larger than {limit // 1024:,} KiB")
        if not self._is_same_origin():
            raise Forbidden("the form was not sent from a page of this console")

    def _is_same_origin(self) -> bool:
        site = request.headers.get("Sec-Fetch-Site")
        if site is not None:
            return site == "same-origin"
        origin = request.headers.get("Origin", "")
        if self._public_url:
            return origin.lower() == self._public_url
        host = request.host.lower()
        return bool(host) and _netloc(origin) == host


def _netloc(url: str) -> str:
    """Host and port of an untrusted URL. Empty: it is malformed."""
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""
