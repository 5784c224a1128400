"""``usher plan --directory``: other files in the place of configured sources, to see what would come of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from app.commands.frame import CommandError
from app.directory.source import EVERYTHING

if TYPE_CHECKING:
    from app.directory.settings import DirectorySettings, FileSourceSettings, SourceSettings
    from app.directory.source import Reading, ReadRequest, Source
    from app.settings import Settings
    from app.sync.runs.run import WhatIf


@dataclass(frozen=True, slots=True)
class ReplacedSources:
    """The directory as it would be."""

    directory: DirectorySettings
    what_if: WhatIf

    def sources(self, settings: Settings, stop: Event) -> list[Source]:
        """What is read: the files, and nothing in the name of sources that gave way to one."""
        from app.commands.bootstrap.outside import configured_sources

        as_it_would_be = settings.model_copy(update={"directory": self.directory})
        files = configured_sources(as_it_would_be, stop=stop, spool=False)
        return [*files, *map(_Nothing, self.what_if.emptied)]


@dataclass(frozen=True, slots=True)
class _Nothing:
    """A source that gives nothing."""

    name: str

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:  # noqa: ARG002 - it gives everything
        """The end."""
        from app.directory.source import End, Verdict

        yield End(Verdict.COMPLETE)


def replace_sources(directory: DirectorySettings, given: Sequence[str]) -> ReplacedSources:
    """``given``: ``FILE``, which takes the place of all sources, or any number of ``NAME=FILE``.

    Raises ``CommandError``.
    """
    from app.sync.runs.run import WhatIf

    names = [source.source_name for source in directory.sources]
    files: dict[str, str] = {}
    for text in given:
        # A name may hold an equals sign itself.
        name = next((name for name in names if text.startswith(f"{name}=")), None)
        if name is None and len(given) > 1:
            raise CommandError(
                f"--directory {text}: several are given as NAME=FILE, with the names of sources: {', '.join(names)}"
            )
        if name in files:
            raise CommandError(f"--directory: {name} is given twice")
        files[name if name is not None else ""] = text if name is None else text.removeprefix(f"{name}=")
    if "" in files:
        # Under the first one's name: what it said before is what the file is compared with.
        return _made(directory, [_file(names[0], files[""])], WhatIf(files=(files[""],), emptied=tuple(names[1:])))
    sources = [
        _file(source.source_name, files[source.source_name]) if source.source_name in files else source
        for source in directory.sources
    ]
    return _made(directory, sources, WhatIf(files=tuple(files.values())))


def _made(directory: DirectorySettings, sources: Sequence[SourceSettings], what_if: WhatIf) -> ReplacedSources:
    return ReplacedSources(directory.model_copy(update={"sources": tuple(sources)}), what_if)


def _file(name: str, path: str) -> FileSourceSettings:
    from pydantic import ValidationError

    from app.directory.settings import FileSourceSettings

    try:
        return FileSourceSettings(type="file", path=Path(path), name=name)
    except ValidationError as error:
        raise CommandError(f"--directory {path}: not the path of a file") from error
