"""Warns of reads that a refresh would refuse or that look incomplete.

For check, preview and doctor. ``app/access/refresh/guard.py`` refuses reads.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from app.access.contents import SourceState
from app.access.refresh.guard import Guard, how_to_accept, losses_in_words
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
    in_force = sum(state.records for state in states.values())
    accept = how_to_accept(name, "--accept-empty")
    if known_empty and not before:
        return None
    if not records and before:
        advice = f"check that its reader may still read the contents; {accept}"
        return SourceWarning(
            name, f"is empty, but provided {counted(before, 'record')} before", advice, is_refused=True
        )
    if not records and in_force and (state is None or state.last_good_at is None):
        others = f"{counted(in_force, 'record')} of other sources {are(in_force)} in force"
        message = f"is read for the first time and is empty, while {others}"
        return SourceWarning(name, message, f"{_WHY_EMPTY}; {accept}", is_refused=True)
    if not records and not in_force:
        return SourceWarning(name, "is empty: nobody gets access", _WHY_EMPTY)
    losses = missing_records(name, kinds, states)
    refused_losses = {kind: numbers for kind, numbers in losses.items() if guard.refuses(*numbers)}
    if refused_losses:
        message = f"would take away at least {losses_in_words(refused_losses)}, {guard}"
        return SourceWarning(
            name, message, f"check that the export is complete; {how_to_accept(name)}", is_refused=True
        )
    if before >= _MIN_RECORDS and records * 2 < before:
        advice = (
            "check that the export is complete: access ends with the next read, and the deletes are held by the limits"
        )
        return SourceWarning(name, f"{counted(records, 'record')}, where {before:,} are in force", advice)
    return None


def missing_records(
    name: str, kinds: Mapping[str, int], states: Mapping[str, SourceState]
) -> dict[str, tuple[int, int]]:
    """Kind → the number of missing records, and the number of stored ones.

    A lower bound: if ten records are removed and ten added, the difference is zero.
    """
    state = states.get(name)
    before = {} if state is None else state.kinds
    return {
        kind: (number - kinds.get(kind, 0), number) for kind, number in before.items() if number > kinds.get(kind, 0)
    }


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
