"""Refuses reads of sources that are empty, or that would remove too much.

The rules: ``app/access/README.md``, "Verdicts".

If a reader has lost its permissions, a directory often reports success, but returns nothing, very little, or no
attribute that disables. The guard refuses a read that would remove or enable more records of one kind than a number and
a percentage. Until an operator accepts it, such a read is partial: it adds and updates, but neither removes nor
enables. The guard checks ``source_delta`` before it is applied.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from app.access.refresh.losses import count_lost_keys, drop_changes, drop_losses, find_losses, losses_in_words
from app.access.refresh.reads import FAILED, PARTIAL, Acceptance, Losses, Refusal, StagedRead
from app.access.refresh.sources import SOURCE
from app.foundation.text import are, counted


def reject_unusable(
    connection: Connection, reads: Sequence[StagedRead], accept_empty: Collection[str]
) -> list[StagedRead]:
    """Marks reads as failed that were overtaken by a later read, or are unexpectedly empty."""
    sources = {row.source_id: row for row in connection.execute(select(SOURCE))}
    in_force = sum(row.records for row in sources.values())
    usable = []
    for read in reads:
        source = sources.get(read.source_id)
        if source is None or (source.read_in_force > read.number and not read.caught_up):
            reason = "another refresh that began later has been faster"
            usable.append(replace(read, verdict=FAILED, reason=reason, overtaken=True))
            continue
        refusal = None
        if read.removes_missing and not read.answered and not read.records and read.name not in accept_empty:
            is_first = source.read_in_force == 0 and not read.known_empty
            refusal = refuse_empty(read.name, before=source.records, in_force=in_force, is_first=is_first)
        usable.append(read if refusal is None else _refused(read, refusal, FAILED))
    return usable


def refuse_empty(name: str, *, before: int, in_force: int, is_first: bool) -> Refusal | None:
    """The refusal of an empty complete read. None: it may be empty.

    ``before``: the number of the source's records in force. ``in_force``: that of all sources. ``is_first``: whether
    the source was never read, and may be the wrong one.
    """
    if before:
        return Refusal(name, f"is empty, but provided {counted(before, 'record')} before", Acceptance.EMPTY)
    if in_force and is_first:
        others = f"{counted(in_force, 'record')} of other sources {are(in_force)} in force"
        return Refusal(name, f"is read for the first time and is empty, while {others}", Acceptance.EMPTY)
    return None


def _refused(read: StagedRead, refusal: Refusal, verdict: str) -> StagedRead:
    """The read with a lower verdict than that of the source."""
    return replace(read, verdict=verdict, reason=str(refusal), refusal=refusal, except_malformed=False)


@dataclass(frozen=True, slots=True)
class Guard:
    """The limits of removed records per read. A read that exceeds both is refused."""

    count: int = 20
    percent: float = 20

    def excessive(self, losses: Losses) -> Losses:
        """The losses that exceed both limits."""
        return {
            kind: loss
            for kind, loss in losses.items()
            if loss.stored is not None and loss.removed > self.count and loss.removed * 100 > self.percent * loss.stored
        }

    def __str__(self) -> str:
        return f"more than {self.count:,} and more than {self.percent:g} %"


def refuse_shrunk(
    connection: Connection,
    reads: Sequence[StagedRead],
    guard_of_source: Mapping[str, Guard],
    common_guard: Guard | None,
    accepted: Collection[str],
    *,
    all_or_nothing: bool = False,
) -> list[StagedRead]:
    """The reads with their losses. Those that would remove too much are partial, and ``source_delta`` does not contain
    their removals. With ``all_or_nothing`` they are failed, and it contains none of their changes.

    ``guard_of_source``: its own guard. The other sources are checked by ``common_guard``, each by itself and all of
    them together. None: they are not checked. ``accepted``: the names of sources that may remove any number.
    """
    lost = count_lost_keys(connection)
    checked = {
        read.source_id: guard_of_source.get(read.name, common_guard)
        for read in reads
        if read.verdict != FAILED and read.name not in accepted
    }
    reads = [_with_losses(connection, read, lost, checked.get(read.source_id)) for read in reads]
    reasons = {
        read.source_id: f"would take away {losses_in_words(excessive)}, {guard}"
        for read in reads
        if (guard := checked.get(read.source_id)) is not None and (excessive := guard.excessive(read.losses))
    }
    if common_guard is not None:
        unguarded = [read.source_id for read in reads if read.name not in guard_of_source]
        together = [source_id for source_id in unguarded if source_id in checked and source_id not in reasons]
        reasons |= _reasons_together(connection, together, lost, common_guard)
    if not reasons:
        return reads
    if all_or_nothing:
        drop_changes(connection, list(reasons))
        verdict, effect = FAILED, ""
    else:
        drop_losses(connection, list(reasons))
        verdict, effect = PARTIAL, "; additions and changes were applied, removals were not"
    return [
        _refused(read, Refusal(read.name, f"{reasons[read.source_id]}{effect}", Acceptance.SHRINK), verdict)
        if read.source_id in reasons
        else read
        for read in reads
    ]


def _with_losses(
    connection: Connection, read: StagedRead, lost: Mapping[int, Counter[str]], guard: Guard | None
) -> StagedRead:
    # After a few changes, counting all stored records would take too long.
    count_from = guard.count + 1 if guard is not None and read.answered else 1
    lost_keys = lost.get(read.source_id, Counter())
    return replace(read, losses=find_losses(connection, lost_keys, [read.source_id], count_from))


def _reasons_together(
    connection: Connection, source_ids: Sequence[int], lost: Mapping[int, Counter[str]], guard: Guard
) -> dict[int, str]:
    """Source → why its read is refused, if these sources together would remove too much."""
    sums = sum((lost[source_id] for source_id in source_ids if source_id in lost), Counter[str]())
    excessive = guard.excessive(find_losses(connection, sums, source_ids, guard.count + 1))
    reason = f"together with the other sources, would take away {losses_in_words(excessive)}, {guard}"
    return {source_id: reason for source_id in source_ids if excessive.keys() & lost.get(source_id, {}).keys()}
