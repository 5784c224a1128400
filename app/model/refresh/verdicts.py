"""The verdicts that count: which reads must not be used although their sources gave what they were asked for.

The rules: ``app/model/README.md``, "Verdicts". A source that held records and gives none is taken as failed until
someone says that it is meant to be empty. So is one that was never read before and gives none while others hold some:
it may be the wrong file.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import Connection, select

from app.model.refresh.staging import FAILED, SOURCE, StagedRead
from app.text import are, counted

_SOURCES = select(SOURCE)


def judge(connection: Connection, reads: Sequence[StagedRead], accept_empty: Collection[str]) -> list[StagedRead]:
    """The reads, with those failed that must not be used."""
    kept = {row.source_id: row for row in connection.execute(_SOURCES)}
    in_force = sum(row.records for row in kept.values())
    judged = []
    for read in reads:
        row = kept.get(read.source_id)
        is_whole = read.tells_what_is_gone and not read.answered
        if row is None or (row.read_in_force > read.number and not read.caught_up):
            reason = "another refresh that began later has been faster"
            judged.append(replace(read, verdict=FAILED, reason=reason, overtaken=True))
        elif is_whole and read.records == 0 and row.records > 0 and read.name not in accept_empty:
            reason = (
                f"is empty, but gave {counted(row.records, 'record')} before; if that is meant, "
                f"confirm it once with --accept-empty {read.name}"
            )
            judged.append(refuse(read, reason))
        elif is_whole and read.records == 0 and in_force and row.read_in_force == 0 and read.name not in accept_empty:
            reason = (
                f"is read for the first time and is empty, while {counted(in_force, 'record')} of other sources"
                f" {are(in_force)} in force; "
                f"if that is meant, confirm it once with --accept-empty {read.name}"
            )
            judged.append(refuse(read, reason))
        else:
            judged.append(read)
    return judged


def refuse(read: StagedRead, reason: str, verdict: str = FAILED) -> StagedRead:
    """A read that does not count as it is although the source gave all that it was asked for. ``verdict``: what it
    counts as."""
    return replace(read, verdict=verdict, reason=reason, refused=reason, except_malformed=False)
