"""Which directory sources are read, and how long what is gone is kept."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


def _usable_path(path: Path) -> Path:
    if "\0" in str(path) or not path.name or len(str(path)) > 1000:
        raise ValueError("not the path of a file")
    return path


class FileSourceSettings(BaseModel):
    """A directory in a file: JSON Lines, JSON or YAML, each also gzipped."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["file"]
    """Which sort of source this is."""
    path: Annotated[Path, AfterValidator(_usable_path)]
    """The file; a relative path starts in the working directory."""
    name: str = Field(default="", max_length=200)
    """What the source is called in reports and for ``--accept-empty``; the path when it is not given."""

    @property
    def source_name(self) -> str:
        """The name in force."""
        return self.name or str(self.path)


SourceSettings = Annotated[FileSourceSettings, Field(discriminator="type")]


class DirectorySettings(BaseModel):
    """The section ``directory``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sources: Annotated[tuple[SourceSettings, ...], Field(min_length=1)] = ()
    """The sources, the most authoritative first: a record key belongs to the first source that gives it. There is no
    default: whoever forgot to name one must not end up with somebody else's directory."""
    grace: int = Field(default=0, ge=0, le=366 * 24 * 3600)
    """Seconds for which something gone from the directory is kept in the backend; its access ends at once."""
    read_timeout: float = Field(default=900, ge=0, le=7 * 24 * 3600)
    """Seconds that a source may keep its reader waiting, all in all; then its read counts as failed. 0: no limit."""
    max_age: int = Field(default=0, ge=0, le=366 * 24 * 3600)
    """Seconds after which a directory that could not be read any more makes ``/readyz`` fail; 0: never."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> "DirectorySettings":
        names = [source.source_name for source in self.sources]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two sources are called {name!r}; give one of them another name")
        return self
