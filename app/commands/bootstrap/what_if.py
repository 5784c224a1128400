"""Replaces configured sources by files, for ``usher plan --directory``, and for runs that preview an uploaded file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from types import MappingProxyType

from pydantic import ValidationError

from app.commands.bootstrap.outgoing import configured_sources
from app.commands.bootstrap.requirements import SetUpError
from app.directory.settings import DirectorySettings, FileSourceSettings, SourceSettings
from app.directory.source import EVERYTHING, End, Reading, ReadRequest, Source, Verdict
from app.settings import Settings
from app.sync.runs.files import UploadedFile, write_file
from app.sync.runs.run import WhatIf


@dataclass(frozen=True, slots=True)
class ReplacedSources:
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


class ReplacementError(SetUpError):
    """Sources cannot be replaced by files in this way. The message is one line for the user."""


def replace_sources(
    directory: DirectorySettings, files: Mapping[str, Path], labels: Mapping[str, str] = MappingProxyType({})
) -> ReplacedSources:
    """Replaces sources by files.

    ``files``: the name of a source → the file that replaces it, or an empty name → a file that replaces all.
    ``labels``: the name of a source, or empty → the file's name in reports. Default: its path.

    Raises ``ReplacementError``.
    """
    names = [source.source_name for source in directory.sources]
    if unknown := [name for name in files if name and name not in names]:
        raise ReplacementError(f"{unknown[0]} is not one of the sources {', '.join(names)}")
    names_in_reports = tuple(labels.get(name, str(path)) for name, path in files.items())
    sources: list[SourceSettings]
    if "" in files:
        # The file gets the name of the first source, so that it is compared with that source's records.
        sources = [_file(names[0], files[""], names_in_reports[0])]
        what_if = WhatIf(files=names_in_reports, emptied=tuple(names[1:]), replaced=(names[0],))
    else:
        label_of = dict(zip(files, names_in_reports, strict=True))
        sources = [
            _file(source.source_name, files[source.source_name], label_of[source.source_name])
            if source.source_name in files
            else source
            for source in directory.sources
        ]
        what_if = WhatIf(files=names_in_reports, replaced=tuple(files))
    return ReplacedSources(directory.model_copy(update={"sources": tuple(sources)}), what_if)


@contextmanager
def uploaded_sources(settings: Settings, file: UploadedFile) -> Iterator[ReplacedSources]:
    """The directory with an uploaded file in place of sources. The file is in a temporary folder until the end of the
    context. Raises ``ReplacementError``, and ``OSError`` if the file cannot be written."""
    with tempfile.TemporaryDirectory(prefix="usher-preview-") as folder:
        path = write_file(file, Path(folder))
        yield replace_sources(settings.directory, {file.source: path}, {file.source: file.name})


def _file(name: str, path: Path, shown: str) -> FileSourceSettings:
    try:
        return FileSourceSettings(type="file", path=path, name=name).shown_as(shown)
    except ValidationError as error:
        raise ReplacementError(f"--directory {shown}: not the path of a file") from error
