"""The data classes of reads: a read that starts, its result as the source reports it, and why it is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from shlex import quote
from typing import NamedTuple

COMPLETE, PARTIAL, FAILED = "complete", "partial", "failed"
"""Verdicts, as in ``app.directory``."""

CHANGES, PART = "changes", "part"
"""The extents of reads that are not of everything, as in ``app.directory``."""


class Acceptance(StrEnum):
    """The option of ``usher directory refresh`` by which an operator accepts a refused read."""

    EMPTY = "accept-empty"
    SHRINK = "accept-shrink"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a complete read is not used as complete. As text: the reason, then the advice."""

    source: str
    reason: str
    """It follows the name of the source in a sentence."""
    acceptance: Acceptance | None
    """None: no option accepts the read."""

    @property
    def command(self) -> str:
        """The command that accepts the read. Empty if there is none."""
        return f"usher directory refresh --{self.acceptance} {quote(self.source)}" if self.acceptance else ""

    @property
    def advice(self) -> str:
        """How an operator can accept the read. Empty without a command."""
        return f"if this is intended, confirm it once: {self.command}" if self.command else ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.advice}" if self.advice else self.reason


class Loss(NamedTuple):
    """The keys of a kind that a read would remove."""

    removed: int
    stored: int | None
    """The number of keys of that kind that the source has. None: not counted."""


Losses = Mapping[str, Loss]
"""kind → its loss, for the kinds that lose any key. ``disabled`` and a kind: keys that would be enabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """The result of a read, as its source reports it."""

    records: int = 0
    """The number of records that it provided, including duplicates."""
    verdict: str = COMPLETE
    reason: str = ""
    malformed: int = 0
    """The number of malformed records."""
    answered: str = ""
    """``CHANGES`` or ``PART``. Empty: everything."""
    cursor: str = ""
    """The cursor for the next read of changes. Empty: only complete reads are possible."""
    settings_digest: str = ""
    """The digest of the settings with which it was read."""
    except_malformed: bool = False
    """Whether a read is partial only because of malformed objects. Their earlier records are kept."""
    caught_up: bool = False
    """Whether it includes the changes during the complete read (``Staging.end_changes``)."""
    seconds: float = 0
    """The duration in seconds."""
    cursor_refused: str = ""
    """Why the source refused the first cursor. Empty if it did not."""
    login_refused: bool = False
    """Whether it failed because the source refused the name or the password."""
    known_empty: bool = False
    """Whether it is complete and empty for sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRead(ReadResult):
    """A finished read of a source. The refresh may lower its verdict."""

    source_id: int
    name: str
    number: int = 0
    """Its number among the reads of this source."""
    overtaken: bool = False
    """Whether a read that began later is already in force."""
    refusal: Refusal | None = None
    """Why a complete read is not used as complete. None if it is."""
    losses: Losses = field(default_factory=dict)
    """The records that it removes, or would remove if it were not refused."""

    @property
    def removes_missing(self) -> bool:
        """Whether stored records that it does not contain are removed, except those that malformed objects provided
        before."""
        return self.verdict == COMPLETE or self.except_malformed


@dataclass(frozen=True, slots=True)
class StartedRead:
    """A read that begins, with the state of its source. Times are epoch milliseconds."""

    source_id: int
    name: str = ""
    number: int = 0
    """Its number among the reads of this source. 0: the source is not read."""
    cursor: str = ""
    """The cursor for reads of changes. Empty: only complete reads are possible."""
    settings_digest: str = ""
    """The digest of the settings with which the cursor was stored."""
    last_full_at: int | None = None
