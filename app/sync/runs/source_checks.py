"""Suspicious sources: what looks wrong of a whole source although nothing is wrong with any of its records."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from app.access.contents import SourceState
from app.access.refresh.guard import Guard, how_to_accept, losses_in_words
from app.foundation.text import are, counted

_HALF_AT_LEAST = 100
"""From so many records on, less than half of them is worth a word."""
_WHY_EMPTY = (
    "see whether its export ran to the end, whether it reads the right thing (file, base, scope, filter, table), and"
    " whether its reader may see what is in it"
)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One thing that somebody should look at."""

    source: str
    says: str
    """What is odd, to be read after the source's name and a colon."""
    advice: str
    is_refused: bool = False
    """Whether a refresh will not take it as it is."""

    def __str__(self) -> str:
        return f"source {self.source}: {self.says}; {self.advice}"


def of_read(name: str, kinds: Mapping[str, int], kept: Mapping[str, SourceState], guard: Guard) -> Suspicion | None:
    """What is odd about a complete read that gave so many records of each kind; ``kept`` is what is in force of each
    source."""
    records = sum(kinds.values())
    state = kept.get(name)
    before = 0 if state is None else state.records
    in_force = sum(one.records for one in kept.values())
    accept = f"if that is meant: usher directory refresh --accept-empty {quote(name)}"
    if not records and before:
        advice = f"see whether its reader may still see what is in it; {accept}"
        return Suspicion(name, f"is empty, but gave {counted(before, 'record')} before", advice, is_refused=True)
    if not records and in_force and (state is None or state.last_good_at is None):
        others = f"{counted(in_force, 'record')} of other sources {are(in_force)} in force"
        says = f"is read for the first time and is empty, while {others}"
        return Suspicion(name, says, f"{_WHY_EMPTY}; {accept}", is_refused=True)
    if not records and not in_force:
        return Suspicion(name, "is empty: it lets nobody in", _WHY_EMPTY)
    going = {kind: numbers for kind, numbers in fewer(name, kinds, kept).items() if guard.refuses(*numbers)}
    if going:
        says = f"would take away at least {losses_in_words(going)}, {guard}"
        return Suspicion(name, says, f"see whether it is whole; {how_to_accept(name)}", is_refused=True)
    if before >= _HALF_AT_LEAST and records * 2 < before:
        advice = "see whether it is whole: access ends with the next read, and the deletes are held by the limits"
        return Suspicion(name, f"{counted(records, 'record')}, where {before:,} are in force", advice)
    return None


def fewer(name: str, kinds: Mapping[str, int], kept: Mapping[str, SourceState]) -> dict[str, tuple[int, int]]:
    """kind → how many records fewer there are than in force, and of how many.

    At least so many would go: what is new hides what is gone."""
    state = kept.get(name)
    before = {} if state is None else state.kinds
    found = {kind: (number - kinds.get(kind, 0), number) for kind, number in before.items()}
    return {kind: numbers for kind, numbers in found.items() if numbers[0] > 0}


def of_retained(configured: Collection[str], kept: Mapping[str, SourceState]) -> Iterator[Suspicion]:
    """The sources of which something is in force, but that are not among those that are configured."""
    for name, state in kept.items():
        if name not in configured and state.records:
            yield _retained(name, f"{counted(state.records, 'record')} of it {are(state.records)} still in force")


def retained_sentence(name: str) -> str:
    """That a source is read no more, for people."""
    return str(_retained(name, "what it gave stays in force"))


def _retained(name: str, consequence: str) -> Suspicion:
    return Suspicion(
        name,
        f"is no longer among directory.sources, and {consequence}",
        f"usher directory forget {quote(name)} takes it away; or configure it again under this name",
    )
