"""The assets of pages: one stylesheet and one script, served under names with their hash, so that they may be kept."""

from hashlib import sha256
from importlib.resources import files

_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class Assets:
    """The files in ``static``, by the names under which they are served."""

    def __init__(self) -> None:
        self._served: dict[str, tuple[bytes, str]] = {}
        self._names: dict[str, str] = {}
        for file in sorted(files(__package__).joinpath("static").iterdir(), key=lambda one: one.name):
            stem, dot, ending = file.name.rpartition(".")
            content = file.read_bytes()
            name = f"{stem}-{sha256(content).hexdigest()[:12]}.{ending}"
            self._served[name] = (content, _TYPES[dot + ending])
            self._names[file.name] = name

    def name(self, file: str) -> str:
        """Under which name this file is served."""
        return self._names[file]

    def find(self, name: str) -> tuple[bytes, str] | None:
        """The content and its type; None: nothing is served under this name (any more)."""
        return self._served.get(name)
