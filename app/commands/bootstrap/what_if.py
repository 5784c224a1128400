"""Replaces configured sources by files, for ``usher plan --directory``, and for runs that preview an uploaded file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import NamedTuple

from pydantic import ValidationError

from app.commands.bootstrap.outgoing import configured_sources
from app.commands.bootstrap.requirements import SetUpError
from app.directory.settings import DirectorySettings, FileSourceSettings
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


class Replacement(NamedTuple):
    """A file that replaces sources."""

    path: Path
    label: str
    """Its name in reports."""


def replace_all_sources(directory: DirectorySettings, file: Replacement) -> ReplacedSources:
    """Replaces all sources by one file. Raises ``ReplacementError``."""
    # The file gets the name of the first source, so that it is compared with that source's records.
    first, *others = [source.source_name for source in directory.sources]
    what_if = WhatIf(files=(file.label,), emptied=tuple(others), replaced=(first,))
    return ReplacedSources(directory.model_copy(update={"sources": (_source(first, file),)}), what_if)


def replace_sources(directory: DirectorySettings, files: Mapping[str, Replacement]) -> ReplacedSources:
    """Replaces each of these sources by a file. Raises ``ReplacementError``."""
    names = [source.source_name for source in directory.sources]
    if unknown := [name for name in files if name not in names]:
        raise ReplacementError(f"{unknown[0]} is not one of the sources {', '.join(names)}")
    sources = tuple(
        _source(name, files[name]) if name in files else source
        for name, source in zip(names, directory.sources, strict=True)
    )
    what_if = WhatIf(files=tuple(file.label for file in files.values()), replaced=tuple(files))
    return ReplacedSources(directory.model_copy(update={"sources": sources}), what_if)


@contextmanager
def uploaded_sources(settings: Settings, file: UploadedFile) -> Iterator[ReplacedSources]:
    """The directory with an uploaded file in place of sources. The file is in a temporary folder until the end of the
    context. Raises ``ReplacementError``, and ``OSError`` if the file cannot be written."""
    with tempfile.TemporaryDirectory(prefix="usher-preview-") as folder:
        replacement, directory = Replacement(write_file(file, Path(folder)), file.name), settings.directory
        if file.source:
            yield replace_sources(directory, {file.source: replacement})
        else:
            yield replace_all_sources(directory, replacement)


def _source(name: str, file: Replacement) -> FileSourceSettings:
    try:
        return FileSourceSettings(type="file", path=file.path, name=name).shown_as(file.label)
    except ValidationError as error:
        raise ReplacementError(f"--directory {file.label}: not the path of a file") from error
