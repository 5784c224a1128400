"""``usher plan --directory``: replaces configured sources by files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from pydantic import ValidationError

from app.commands.bootstrap.peers import configured_sources
from app.commands.frame import CommandError
from app.directory.settings import DirectorySettings, FileSourceSettings, SourceSettings
from app.directory.source import EVERYTHING, End, Reading, ReadRequest, Source, Verdict
from app.settings import Settings
from app.sync.runs.run import WhatIf


@dataclass(frozen=True, slots=True)
class ReplacedSources:
    """The directory with replaced sources."""

    directory: DirectorySettings
    what_if: WhatIf

    def sources(self, settings: Settings, stop: Event) -> list[Source]:
        """The sources to read. Those that a single file replaces are empty."""
        replaced = settings.model_copy(update={"directory": self.directory})
        return [*configured_sources(replaced, stop=stop, spool=False), *map(_EmptySource, self.what_if.emptied)]


@dataclass(frozen=True, slots=True)
class _EmptySource:
    name: str

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:  # noqa: ARG002 - every read is empty
        yield End(Verdict.COMPLETE)


def replace_sources(directory: DirectorySettings, options: Sequence[str]) -> ReplacedSources:
    """``options``: either one ``FILE``, which replaces all sources, or any number of ``NAME=FILE``.

    Raises ``CommandError``.
    """
    names = [source.source_name for source in directory.sources]
    files: dict[str, str] = {}
    for option in options:
        # A name may contain an equals sign.
        name = next((name for name in names if option.startswith(f"{name}=")), None)
        if name is None and len(options) > 1:
            raise CommandError(
                f"--directory {option}: write several as NAME=FILE, with the names of sources: {', '.join(names)}"
            )
        if name in files:
            raise CommandError(f"--directory: {name} is given twice")
        files[name or ""] = option if name is None else option.removeprefix(f"{name}=")
    sources: list[SourceSettings]
    if "" in files:
        # The file gets the name of the first source, so that it is compared with that source's records.
        sources = [_file(names[0], files[""])]
        what_if = WhatIf(files=(files[""],), emptied=tuple(names[1:]))
    else:
        sources = [
            _file(source.source_name, files[source.source_name]) if source.source_name in files else source
            for source in directory.sources
        ]
        what_if = WhatIf(files=tuple(files.values()))
    return ReplacedSources(directory.model_copy(update={"sources": tuple(sources)}), what_if)


def _file(name: str, path: str) -> FileSourceSettings:
    try:
        return FileSourceSettings(type="file", path=Path(path), name=name)
    except ValidationError as error:
        raise CommandError(f"--directory {path}: not the path of a file") from error
