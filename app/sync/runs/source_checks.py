"""Warns of reads that a refresh would refuse or that look incomplete.

Check, preview and doctor show the warnings. ``app/access/refresh/guard.py`` refuses reads.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from app.access.refresh.guard import Guard, refuse_empty
from app.access.refresh.losses import losses_in_words
from app.access.refresh.reads import Acceptance, Loss, Losses, Refusal
from app.access.source_states import SourceState
from app.foundation.text import are, counted

_MIN_RECORDS = 100
"""Sources with fewer stored records than this get no warning when a read is less than half."""
_WHY_EMPTY = (
    "check that its export is complete, that it reads the right data (file, base, scope, filter, table), and that its"
    " reader may read the contents"
)


@dataclass(frozen=True, slots=True)
class SourceWarning:
    """A warning about a source."""

    source: str
    message: str
    """The text after the source's name and a colon."""
    advice: str
    is_refused: bool = False
    """Whether a refresh refuses the read."""

    def __str__(self) -> str:
        return f"source {self.source}: {self.message}; {self.advice}"


def check_read(
    name: str, kinds: Mapping[str, int], states: Mapping[str, SourceState], guard: Guard, *, known_empty: bool = False
) -> SourceWarning | None:
    """Checks a complete read. ``kinds``: its number of records by kind. ``states``: the state of each source.
    ``known_empty``: nothing was pushed to it yet."""
    records = sum(kinds.values())
    state = states.get(name)
    before = 0 if state is None else state.records
    if known_empty and not before:
        return None
    if not records:
        return _check_empty(name, state, sum(state.records for state in states.values()))
    excessive = guard.excessive(missing_records(name, kinds, states))
    if excessive:
        reason = f"would take away at least {losses_in_words(excessive)}, {guard}"
        return _refused(Refusal(name, reason, Acceptance.SHRINK), "check that the export is complete")
    if before >= _MIN_RECORDS and records * 2 < before:
        advice = (
            "check that the export is complete: access ends with the next read, and the deletes are held by the limits"
        )
        return SourceWarning(name, f"{counted(records, 'record')}, where {before:,} are in force", advice)
    return None


def _check_empty(name: str, state: SourceState | None, in_force: int) -> SourceWarning | None:
    """Checks an empty read. ``in_force``: the number of records of all sources."""
    before = 0 if state is None else state.records
    is_first = state is None or state.last_good_at is None
    refusal = refuse_empty(name, before=before, in_force=in_force, is_first=is_first)
    if refusal is not None:
        return _refused(refusal, "check that its reader may still read the contents" if before else _WHY_EMPTY)
    return None if in_force else SourceWarning(name, "is empty: nobody gets access", _WHY_EMPTY)


def _refused(refusal: Refusal, advice: str) -> SourceWarning:
    return SourceWarning(refusal.source, refusal.reason, f"{advice}; {refusal.advice}", is_refused=True)


def missing_records(name: str, kinds: Mapping[str, int], states: Mapping[str, SourceState]) -> Losses:
    """The kinds with fewer records than are stored, as the losses of the read.

    A lower bound: if ten records are removed and ten added, the difference is zero.
    """
    state = states.get(name)
    stored = {} if state is None else state.kinds
    missing = {kind: number - kinds.get(kind, 0) for kind, number in stored.items()}
    return {kind: Loss(number, stored[kind]) for kind, number in missing.items() if number > 0}


def check_retained(configured: Collection[str], states: Mapping[str, SourceState]) -> Iterator[SourceWarning]:
    """Sources with stored records that are no longer configured."""
    for name, state in states.items():
        if name not in configured and state.records:
            yield _retained(name, f"{counted(state.records, 'record')} of it {are(state.records)} still in force")


def retained_sentence(name: str) -> str:
    """The sentence about a source that is no longer configured."""
    return str(_retained(name, "its records stay in force"))


def _retained(name: str, consequence: str) -> SourceWarning:
    return SourceWarning(
        name,
        f"is no longer among directory.sources, and {consequence}",
        f"usher directory forget {quote(name)} removes them; or configure it again under this name",
    )
