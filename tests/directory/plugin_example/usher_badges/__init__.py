"""A plug-in for Usher: the export of a badge system, a text file with one object per line.

::

    person<TAB>ada<TAB>Ada Lovelace<TAB>ada@acme.example
    badge<TAB>ada<TAB>acme
    end<TAB>2
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from app.directory.connector import DirectoryObject, Objects, ReadError, RequestedFields
from app.directory.plugins import PluginSettings, SourcePlugin
from app.directory.source import EVERYTHING, End, ObjectId, ReadRequest, Verdict

ATTRIBUTES = {"people": ("id", "name", "mail"), "badges": ("person", "team")}
SETS = {"person": "people", "badge": "badges"}


class BadgeSettings(PluginSettings):
    """The settings of ``type: badges``."""

    sets = tuple(ATTRIBUTES)
    type: Literal["badges"]
    path: Path
    """The export."""


class BadgeConnector:
    """Reads the export. Each read is a complete one."""

    def __init__(self, settings: BadgeSettings) -> None:
        self._path = settings.path

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
        """The objects, and then the verdict. Nothing is raised for anything that the outside world can cause."""
        try:
            yield from self._objects(wanted)
            yield End(Verdict.COMPLETE)
        except ReadError as error:
            yield error.end
        except (OSError, UnicodeDecodeError) as error:
            yield ReadError(f"{self._path}: cannot be read: {type(error).__name__}; check path").end

    def _objects(self, wanted: RequestedFields) -> Iterator[DirectoryObject]:
        with self._path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file):
                kind, *values = line.removesuffix("\n").split("\t")
                place = f"{self._path}:{number + 1}"
                if kind == "end" and values == [str(number)]:
                    return
                set_ = SETS.get(kind, "")
                if not set_ or not line.endswith("\n") or len(values) != len(ATTRIBUTES[set_]):
                    raise ReadError(f"{place}: is no line of an export; check path")
                if set_ in wanted.attributes:
                    id_ = values[0] if set_ == "people" else "/".join(values)
                    yield DirectoryObject(ObjectId(set_, id_), dict(zip(ATTRIBUTES[set_], values, strict=True)), place)
        raise ReadError(f"{self._path}: is truncated, because it does not end with the number of its lines")


plugin = SourcePlugin(settings=BadgeSettings, connector=BadgeConnector)
