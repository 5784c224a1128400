"""What was read from each source just now.

A complete read replaces what the source said before; a partial one adds to it and updates it; a failed one changes
nothing. A read of changes, or of a part, does so for the objects that it tells of, and for nothing else. Within one
source the last record of a key counts.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from sqlalchemy import (
    Connection,
    Insert,
    Select,
    exists,
    func,
    insert,
    select,
    text,
)
from sqlalchemy import delete as delete_from

from app.model.refresh.problems import Problem, ProblemList, ProblemSort
from app.model.refresh.scratch import (
    MALFORMED_OBJECT,
    REPLACED,
    REREAD_OBJECT,
    SCRATCH_TABLES,
    SCRATCH_TABLES_OF_KIND,
    ScratchTables,
    described,
    same,
)
from app.model.refresh.session import RefreshSession
from app.store.directory_tables import DirectorySourceRow
from app.store.record_tables import core_table

COMPLETE, PARTIAL, FAILED = "complete", "partial", "failed"
"""Verdicts, as ``directory`` names them."""

CHANGES, PART = "changes", "part"
"""What a read was about that did not read everything, as ``directory`` names it."""

SOURCE = core_table(DirectorySourceRow)

NOTHING_STAGED: Mapping[str, int] = MappingProxyType({})
"""Nothing was staged before."""

UNCONFIGURED_POSITION = 1_000_000
"""Sources that are kept although they are no longer configured stand behind all others."""


class SourceError(ValueError):
    """What was asked of a source cannot be; the text is one line for whoever asked."""


Losses = Mapping[str, tuple[int, int | None]]
"""kind → how many keys would go, and of how many (None: these were not counted); kinds of which any would."""


@dataclass(frozen=True, slots=True)
class StagedRead:
    """One read of one source that has come to its end."""

    source_id: int
    name: str
    position: int
    number: int
    """Its number among the reads of this source."""
    records: int
    """How many records it gave, duplicates included."""
    verdict: str
    reason: str
    malformed: int = 0
    """How many of its records could not be understood."""
    answered: str = ""
    """``CHANGES`` or ``PART``; empty: everything."""
    cursor: str = ""
    """From where changes can be asked for next; empty: only everything can be."""
    digest: str = ""
    """Of the settings under which it was read."""
    except_malformed: bool = False
    """Of a partial read: whether only malformed objects make it partial. What they provided before is kept."""
    caught_up: bool = False
    """Whether what changed while everything was read was asked for afterwards, and is part of it."""
    seconds: float = 0
    """How long it took."""
    overtaken: bool = False
    """Whether another read, which began later, is in force already."""
    refused: str = ""
    """Why it does not count as complete although the source gave all that it was asked for; empty: it does."""
    cursor_refused: str = ""
    """Why the source did not accept the cursor that it was asked with at first; empty: it did."""
    losses: Losses = field(default_factory=dict)
    """What it takes away, or would, were it not refused."""

    @property
    def tells_what_is_gone(self) -> bool:
        """Whether what it does not provide is gone, but for what malformed objects provided before."""
        return self.verdict == COMPLETE or self.except_malformed


# Duplicates within a source.


def drop_duplicates(session: RefreshSession, names: Mapping[int, str], problems: ProblemList) -> None:
    """Leaves the last of all staged records of a key and source, and reports the others.

    From here on the staged tables that hold anything are indexed.
    """
    with session.scratch() as connection:
        for tables in SCRATCH_TABLES:
            if tables.kind not in session.kinds_staged:
                continue
            session.index_staged(tables)
            session.analyze(tables.staged)
            if connection.execute(_find_repeated(tables.kind)).rowcount:
                _drop_duplicates_of_kind(connection, tables, names, problems)
                connection.execute(delete_from(REPLACED))


@cache
def _find_repeated(kind: str) -> Insert:
    """Notes the records that are replaced: the index is read once, and what was staged several times looked up."""
    tables = SCRATCH_TABLES_OF_KIND[kind]
    staged = tables.staged
    columns = [staged.c[name] for name in tables.source_keys]
    last = func.max(staged.c.seq).label("last_seq")
    repeated = select(*columns, last).group_by(*columns).having(func.count() > 1).subquery()
    replaced = (
        select(staged.c.seq, repeated.c.last_seq)
        .select_from(repeated.join(staged, same(staged, repeated, tables.source_keys)))
        .where(staged.c.seq < repeated.c.last_seq)
    )
    return insert(REPLACED).from_select(["seq", "last_seq"], replaced)


def _drop_duplicates_of_kind(
    connection: Connection, tables: ScratchTables, names: Mapping[int, str], problems: ProblemList
) -> None:
    staged, last = tables.staged, tables.staged.alias("last")
    replaced = REPLACED.join(staged, staged.c.seq == REPLACED.c.seq)
    # Which source's records come first when several are read side by side is chance.
    by_source = select(staged.c.source_id, func.count().label("records")).select_from(replaced)
    by_source = by_source.group_by(staged.c.source_id).order_by(staged.c.source_id)
    counts = {row.source_id: row.records for row in connection.execute(by_source)}
    sample: list[Problem] = []
    for source_id in counts:
        sampled = (
            select(staged, last.c.place.label("last_place"))
            .select_from(replaced.join(last, last.c.seq == REPLACED.c.last_seq))
            .where(staged.c.source_id == source_id)
            .order_by(staged.c.seq)
            .limit(problems.of_each)
        )
        sample += [
            Problem(
                ProblemSort.DUPLICATE,
                names[source_id],
                row.place,
                f"{described(tables, row)} stands again at {row.last_place}, which replaces this record",
            )
            for row in connection.execute(sampled)
        ]
    connection.execute(delete_from(staged).where(staged.c.seq.in_(select(REPLACED.c.seq))))
    problems.add_counted(ProblemSort.DUPLICATE, {names[one]: count for one, count in counts.items()}, sample)


# What a read tells of single objects.


def tell_objects(connection: Connection, source_id: int, after: Mapping[str, int]) -> None:
    """Notes the objects whose records were staged for a source; ``after``: kind → only those behind this number."""
    for tables in SCRATCH_TABLES:
        staged = tables.staged
        origins = (
            select(staged.c.source_id, staged.c.origin)
            .where(staged.c.source_id == source_id, staged.c.seq > after.get(tables.kind, 0))
            .distinct()
        )
        tell(connection, origins)


def leave_out_malformed(connection: Connection, source_id: int) -> None:
    """Takes malformed objects out of those of which a read says all: what else they provided before is kept."""
    connection.execute(
        delete_from(REREAD_OBJECT).where(
            REREAD_OBJECT.c.source_id == source_id,
            exists().where(same(MALFORMED_OBJECT, REREAD_OBJECT, ("source_id", "origin"))),
        )
    )


def tell(connection: Connection, objects: Select[tuple[int, str]]) -> None:
    """Notes objects, whether they are noted or not."""
    named = objects.subquery()
    new = select(named).where(
        ~exists().where(REREAD_OBJECT.c.source_id == named.c.source_id, REREAD_OBJECT.c.origin == named.c.origin)
    )
    connection.execute(insert(REREAD_OBJECT).from_select(["source_id", "origin"], new))


def tell_gone(
    connection: Connection, source_id: int, origins: Collection[str], *, after: Mapping[str, int] = NOTHING_STAGED
) -> None:
    """Notes objects of which nothing is left, and drops what was staged of them before, behind these numbers; a few
    hundred at a time."""
    for tables in SCRATCH_TABLES:
        staged = tables.staged
        connection.execute(
            delete_from(staged).where(
                staged.c.source_id == source_id,
                staged.c.seq > after.get(tables.kind, 0),
                staged.c.origin.in_(list(origins)),
            )
        )
    noted = select(REREAD_OBJECT.c.origin).where(
        REREAD_OBJECT.c.source_id == source_id, REREAD_OBJECT.c.origin.in_(list(origins))
    )
    new = set(origins) - set(connection.execute(noted).scalars())
    if new:
        rows = [{"source_id": source_id, "origin": origin} for origin in sorted(new)]
        connection.execute(insert(REREAD_OBJECT), rows)


def tell_malformed(connection: Connection, source_id: int, origins: Mapping[str, bool]) -> None:
    """Notes malformed objects, and whether they are disabled; a few hundred at a time."""
    rows = [{"source_id": source_id, "origin": origin, "disabled": off} for origin, off in sorted(origins.items())]
    connection.execute(text(_MALFORMED), rows)


_MALFORMED = f"""
INSERT INTO {MALFORMED_OBJECT.name} (source_id, origin, disabled) VALUES (:source_id, :origin, :disabled)
ON CONFLICT (source_id, origin) DO UPDATE SET disabled = {MALFORMED_OBJECT.name}.disabled OR excluded.disabled
"""  # noqa: S608 - our own table


def drop_staged(connection: Connection, source_id: int, *, after: Mapping[str, int] = NOTHING_STAGED) -> None:
    """Drops what was staged for a source; ``after``: kind → only what stands behind this number."""
    for tables in SCRATCH_TABLES:
        staged = tables.staged
        behind = staged.c.seq > after.get(tables.kind, 0)
        connection.execute(delete_from(staged).where(staged.c.source_id == source_id, behind))
    connection.execute(delete_from(REREAD_OBJECT).where(REREAD_OBJECT.c.source_id == source_id))
    if not after:
        connection.execute(delete_from(MALFORMED_OBJECT).where(MALFORMED_OBJECT.c.source_id == source_id))


def supersede_staged(connection: Connection, source_id: int, before: Mapping[str, int]) -> None:
    """Drops, of what was staged for a source up to these numbers, what was read anew behind them."""
    anew = select(REREAD_OBJECT.c.origin).where(REREAD_OBJECT.c.source_id == source_id)
    if connection.execute(anew.limit(1)).first() is not None:
        for tables in SCRATCH_TABLES:
            staged = tables.staged
            connection.execute(
                delete_from(staged).where(
                    staged.c.source_id == source_id,
                    staged.c.seq <= before.get(tables.kind, 0),
                    staged.c.origin.in_(anew),
                )
            )
    # What remains is all that there is: nothing more is to be said of single objects.
    connection.execute(delete_from(REREAD_OBJECT).where(REREAD_OBJECT.c.source_id == source_id))


def last_staged(connection: Connection) -> dict[str, int]:
    """Kind → the number of the last record that was staged."""
    return {
        tables.kind: connection.execute(select(func.coalesce(func.max(tables.staged.c.seq), 0))).scalar_one()
        for tables in SCRATCH_TABLES
    }
