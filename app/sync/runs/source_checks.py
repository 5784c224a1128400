"""Checks sources as a whole, for example for an unexpectedly empty read."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from app.access.contents import SourceState
from app.access.refresh.guard import IF_INTENDED, Guard, how_to_accept, losses_in_words
from app.foundation.text import are, counted

_MIN_RECORDS = 100
"""The number of effective records from which a read with less than half of them is reported."""
_WHY_EMPTY = (
    "see whether its export ran to the end, whether it reads the right thing (file, base, scope, filter, table), and"
    " whether its reader may see what is in it"
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
    name: str, kinds: Mapping[str, int], kept: Mapping[str, SourceState], guard: Guard
) -> SourceWarning | None:
    """Checks a complete read. ``kinds``: its number of records by kind. ``kept``: the state of each source."""
    records = sum(kinds.values())
    state = kept.get(name)
    before = 0 if state is None else state.records
    in_force = sum(one.records for one in kept.values())
    accept = f"{IF_INTENDED}: usher directory refresh --accept-empty {quote(name)}"
    if not records and before:
        advice = f"see whether its reader may still see what is in it; {accept}"
        return SourceWarning(
            name, f"is empty, but provided {counted(before, 'record')} before", advice, is_refused=True
        )
    if not records and in_force and (state is None or state.last_good_at is None):
        others = f"{counted(in_force, 'record')} of other sources {are(in_force)} in force"
        message = f"is read for the first time and is empty, while {others}"
        return SourceWarning(name, message, f"{_WHY_EMPTY}; {accept}", is_refused=True)
    if not records and not in_force:
        return SourceWarning(name, "is empty: nobody gets access", _WHY_EMPTY)
    going = {kind: numbers for kind, numbers in missing_records(name, kinds, kept).items() if guard.refuses(*numbers)}
    if going:
        message = f"would take away at least {losses_in_words(going)}, {guard}"
        return SourceWarning(name, message, f"see whether it is whole; {how_to_accept(name)}", is_refused=True)
    if before >= _MIN_RECORDS and records * 2 < before:
        advice = "see whether it is whole: access ends with the next read, and the deletes are held by the limits"
        return SourceWarning(name, f"{counted(records, 'record')}, where {before:,} are in force", advice)
    return None


def missing_records(name: str, kinds: Mapping[str, int], kept: Mapping[str, SourceState]) -> dict[str, tuple[int, int]]:
    """Kind → the number of missing records, and the number of effective ones.

    At least so many would be removed: new records hide removed ones."""
    state = kept.get(name)
    before = {} if state is None else state.kinds
    found = {kind: (number - kinds.get(kind, 0), number) for kind, number in before.items()}
    return {kind: numbers for kind, numbers in found.items() if numbers[0] > 0}


def check_retained(configured: Collection[str], kept: Mapping[str, SourceState]) -> Iterator[SourceWarning]:
    """Sources with effective records that are no longer configured."""
    for name, state in kept.items():
        if name not in configured and state.records:
            yield _retained(name, f"{counted(state.records, 'record')} of it {are(state.records)} still in force")


def retained_sentence(name: str) -> str:
    """The sentence about a source that is no longer configured."""
    return str(_retained(name, "its records stay effective"))


def _retained(name: str, consequence: str) -> SourceWarning:
    return SourceWarning(
        name,
        f"is no longer among directory.sources, and {consequence}",
        f"usher directory forget {quote(name)} removes them; or configure it again under this name",
    )
