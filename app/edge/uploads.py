"""Large bodies, which go to a file while they arrive instead of into memory.

Only of requests that the app admits by their head alone (who sends it, and where to): nobody else gets to fill a disk.
An app says so by ``admit_uploads``; the worker asks before anything of the body is kept. What is not admitted, and what
does not say its length beforehand, is bounded like any other body.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from flask import Flask

from app.contract.errors import PAYLOAD_TOO_LARGE, InvalidArgument, Unavailable

_EXTENSION = "usher-uploads"


@dataclass(frozen=True, slots=True)
class UploadBounds:
    """What uploads may cost. Times are in seconds."""

    max_bytes: int = 512 * 1024 * 1024
    """A larger one is refused."""
    seconds: float = 900.0
    """Until all of it has arrived."""
    at_once: int = 4
    """So many arrive side by side at one process."""


BOUNDS = UploadBounds()
"""What holds where nobody says otherwise."""

Admits = Callable[[str, str, str], bool]
"""Method, path (decoded) and the value of ``Authorization``: whether the app wants that body."""


class Upload:
    """A body on its way into a file, which is gone when it is closed or forgotten."""

    def __init__(self, length: int) -> None:
        self.left = length
        """Bytes that have not arrived."""
        # No name, no trace: whoever dies leaves nothing behind.
        self.file = tempfile.TemporaryFile(prefix="usher-upload-")  # noqa: SIM115 - it lives as long as the request

    def add(self, data: bytes | bytearray) -> int:
        """Takes what belongs to the body; how many bytes that was. Raises ``Unavailable`` where there is no room."""
        mine = data[: self.left] if len(data) > self.left else data
        try:
            self.file.write(mine)
            if self.left == len(mine):
                self.file.seek(0)
        except OSError as error:
            raise Unavailable("there is no room to take this in; try again later") from error
        self.left -= len(mine)
        return len(mine)


def admit_uploads(app: Flask, admits: Admits) -> None:
    """Lets a server take in what ``admits`` says yes to, whatever its size up to ``UploadBounds.max_bytes``."""
    app.extensions[_EXTENSION] = admits


def upload_for(app: Any, request: Any, *, max_body: int, bounds: UploadBounds) -> Upload | None:
    """Where the body of a request goes (gunicorn's, of which the head was read); None: into memory, as usual.

    Raises ``InvalidArgument`` for one that is larger than any upload.
    """
    length = getattr(request.body.reader, "length", 0)
    admits: Admits | None = getattr(app, "extensions", {}).get(_EXTENSION)
    if admits is None or length <= max_body:
        return None
    shown = [value for name, value in request.headers if name == "AUTHORIZATION"]
    if len(shown) != 1 or not admits(request.method, unquote(request.path or ""), shown[0]):
        return None
    if length > bounds.max_bytes:
        raise InvalidArgument(f"the body is larger than {bounds.max_bytes} bytes", http_code=PAYLOAD_TOO_LARGE)
    return Upload(length)
