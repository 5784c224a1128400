"""The source objects that a configuration asks for."""

from threading import Event

from app.directory.file import FileSource
from app.directory.guarded import GuardedSource
from app.directory.settings import DirectorySettings
from app.directory.source import Source


def sources_from_settings(settings: DirectorySettings, *, stop: Event | None = None) -> list[Source]:
    """One source per entry, in the order of the configuration; nothing is opened yet. ``stop`` ends a read at once."""
    return [
        GuardedSource(FileSource(source.path, name=source.source_name), timeout=settings.read_timeout, stop=stop)
        for source in settings.sources
    ]
