"""What a refresh is given: the records of its sources, staged in batches, and how each source was read."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType
from typing import Self

from sqlalchemy import Connection, insert, select

from app.access.records import Record
from app.model.refresh.guard import Guard
from app.model.refresh.kept import Begun, begin_reads
from app.model.refresh.marks import About
from app.model.refresh.parts import aliases_of, objects_of
from app.model.refresh.replace import STATE
from app.model.refresh.scratch import SCRATCH_TABLES
from app.model.refresh.session import RefreshSession
from app.model.refresh.staging import (
    FAILED,
    NOTHING_STAGED,
    StagedRead,
    drop_staged,
    last_staged,
    leave_out_malformed,
    supersede_staged,
    tell_gone,
    tell_malformed,
    tell_objects,
)
from app.store.record_tables import VALUES_FROM_RECORD, Values

_BATCH_ROWS = 5_000
_BATCH_CHARACTERS = 4 * 1024 * 1024
"""Staged rows wait in memory for company until there are so many, or their payloads so long."""

_STATE = select(STATE.c.state_id)

_GONE_AT_A_TIME = 500
"""Objects that are gone wait for company until there are so many."""

NO_GUARDS: Mapping[str, Guard] = MappingProxyType({})
"""No source has a guard of its own."""

NOTHING_LEFT_OUT: Mapping[str, About] = MappingProxyType({})
"""Every source says all that there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HowRead:
    """What else there is to say of a read that has ended."""

    answered: str = ""
    """``CHANGES`` or ``PART``; empty: everything was read."""
    cursor: str = ""
    """From where changes can be asked for next."""
    digest: str = ""
    """Of the settings under which it was read."""
    except_malformed: bool = False
    """Of a partial read: whether only malformed objects make it partial."""
    caught_up: bool = False
    """Whether ``Refresh.caught_up`` has added what changed meanwhile."""
    seconds: float = 0
    """How long it took."""
    cursor_refused: str = ""
    """Why the source did not accept the cursor that it was asked with at first."""


AS_A_WHOLE = HowRead()
"""Everything was read of a source that knows no changes."""


class Intake:
    """The reads of one refresh; use it in a ``with`` statement."""

    def __init__(self, session: RefreshSession) -> None:
        self._session = session
        self._waiting: dict[str, list[Values]] = {tables.kind: [] for tables in SCRATCH_TABLES}
        self._waiting_rows = 0
        self._waiting_characters = 0
        self._begun: dict[int, Begun] = {}
        self._gone: dict[int, set[str]] = {}
        """Position → objects of which nothing is left, until they are noted."""
        self._malformed: dict[int, dict[str, bool]] = {}
        """Position → malformed objects, and whether they are disabled, until they are noted."""
        self._follows: dict[int, dict[str, int]] = {}
        """Position → the last numbers of what was staged when changes began to follow."""
        self._open: dict[int, StagedRead] = {}
        """Position → the read of the source that stands there in the configuration."""
        self._ended: dict[int, StagedRead] = {}
        self._guard: Guard | None = None
        self._guards: dict[int, Guard] = {}
        self._abouts: dict[int, About] = {}
        self._positions: dict[int, int] = {}
        """Source → its position in the configuration, read or not."""

    def __enter__(self) -> Self:
        self._session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.__exit__(kind, error, trace)

    def begin(
        self,
        names: Sequence[str],
        *,
        only: Collection[str] | None = None,
        guard: Guard | None = None,
        guards: Mapping[str, Guard] = NO_GUARDS,
        abouts: Mapping[str, About] = NOTHING_LEFT_OUT,
    ) -> None:
        """Says which sources there are, in the order of the configuration; names are unique. All of them will be read,
        or ``only`` some: the others stay as they are.

        ``guard`` is what they are guarded by, alone and together, but for those that have one in ``guards``. Those in
        ``abouts`` say nothing of what that leaves out.
        """
        with self._session.change() as connection:
            make_state(connection)
            begun = begin_reads(connection, names, names if only is None else only)
        self._begun = dict(enumerate(begun))
        self._positions = {one.source_id: position for position, one in self._begun.items()}
        self._open = {
            position: StagedRead(
                source_id=begun.source_id,
                name=names[position],
                position=position,
                number=begun.number,
                records=0,
                verdict=FAILED,
                reason="",
            )
            for position, begun in self._begun.items()
            if begun.number
        }
        self._guard = guard
        self._abouts = {read.source_id: abouts[read.name] for read in self._open.values() if read.name in abouts}
        self._guards = {read.source_id: guards[read.name] for read in self._open.values() if read.name in guards}

    def begun(self, position: int) -> Begun:
        """What is known of the source at that position."""
        return self._begun[position]

    def objects_of(
        self, position: int, organization_ids: Collection[str], user_ids: Collection[str]
    ) -> Sequence[tuple[str, str]] | None:
        """The objects of the source at that position that gave records of these; None: they cannot be told."""
        with self._session.snapshot() as connection:
            return objects_of(connection, self._begun[position].source_id, organization_ids, user_ids)

    def aliases_of(self, user_ids: Collection[str]) -> Sequence[str]:
        """What else these users are called, by the access model."""
        with self._session.snapshot() as connection:
            return aliases_of(connection, user_ids)

    def open_source(self, source_id: int) -> None:
        """What is added from here on is staged for this source; no read begins. For ``apply_changes``."""
        self._open = {0: StagedRead(source_id, name="", position=0, number=0, records=0, verdict=FAILED, reason="")}

    def add(self, record: Record, place: str, *, origin: str = "", rule: str = "", position: int | None = None) -> None:
        """Stages a record of the source at that position; None: of the first that has not ended yet.

        ``origin``: the object that it was made from (``app.store.directory_tables.origin_text``), ``rule``: what made
        it, both empty where the source has no objects.
        """
        if position is None:
            position = next(iter(self._open))
        if self._gone and origin in self._gone.get(position, ()):
            self._flush()
        kind = record.kind
        values = VALUES_FROM_RECORD[kind](record)
        self._waiting[kind].append((*values, self._open[position].source_id, origin, rule, place))
        self._waiting_rows += 1
        # Payloads are the one part of a row that can be long; they stand next to last.
        payload = values[-2]
        if isinstance(payload, str):
            self._waiting_characters += len(payload)
        if self._waiting_rows >= _BATCH_ROWS or self._waiting_characters >= _BATCH_CHARACTERS:
            self._flush()

    def gone(self, origin: str, *, position: int | None = None) -> None:
        """Among changes: of this object nothing is left, whatever was added of it before."""
        gone = self._gone.setdefault(self._read_at(position).position, set())
        gone.add(origin)
        if len(gone) >= _GONE_AT_A_TIME:
            self._flush()

    def malformed(self, origin: str, *, disabled: bool, position: int | None = None) -> None:
        """Of this object no record could be made: what it provided before is kept, ``disabled`` if it is."""
        malformed = self._malformed.setdefault(self._read_at(position).position, {})
        malformed[origin] = malformed.get(origin, False) or disabled
        if len(malformed) >= _GONE_AT_A_TIME:
            self._flush()

    def again(self, position: int) -> None:
        """The source at that position is read from the beginning: what was added of it is dropped."""
        self._flush()
        self._follows.pop(position, None)
        with self._session.scratch() as connection:
            drop_staged(connection, self._open[position].source_id)

    def follow(self, position: int) -> None:
        """All of the source was added; what is added of it from here on are changes since."""
        self._flush()
        with self._session.scratch() as connection:
            self._follows[position] = last_staged(connection)

    def caught_up(self, position: int, *, usable: bool) -> None:
        """The changes that ``follow`` announced were added as well; unless they are ``usable``, they are dropped."""
        self._flush()
        source_id, before = self._open[position].source_id, self._follows.pop(position)
        with self._session.scratch() as connection:
            if usable:
                tell_objects(connection, source_id, before)
                supersede_staged(connection, source_id, before)
            else:
                drop_staged(connection, source_id, after=before)

    def end(
        self,
        *,
        records: int,
        verdict: str,
        reason: str,
        malformed: int = 0,
        position: int | None = None,
        how: HowRead = AS_A_WHOLE,
    ) -> None:
        """Closes the source at that position, as ``add``; the records of a failed read are dropped."""
        self._flush()
        open_read = self._read_at(position)
        read = replace(
            open_read,
            records=records,
            malformed=malformed,
            verdict=verdict,
            reason=reason,
            answered=how.answered,
            cursor=how.cursor,
            digest=how.digest,
            except_malformed=how.except_malformed,
            caught_up=how.caught_up,
            seconds=how.seconds,
            cursor_refused=how.cursor_refused,
        )
        del self._open[read.position]
        self._ended[read.position] = read
        with self._session.scratch() as connection:
            if verdict == FAILED:
                drop_staged(connection, read.source_id)
            elif how.answered:
                tell_objects(connection, read.source_id, NOTHING_STAGED)
                leave_out_malformed(connection, read.source_id)

    def _read_at(self, position: int | None) -> StagedRead:
        return self._open[next(iter(self._open)) if position is None else position]

    def _reads(self) -> list[StagedRead]:
        """Those that have ended, in the order of the configuration, whichever ended first."""
        return [read for _, read in sorted(self._ended.items())]

    def _flush(self) -> None:
        if self._waiting_rows:
            self._session.stage(self._waiting)
            for values in self._waiting.values():
                values.clear()
            self._waiting_rows = self._waiting_characters = 0
        for position, gone in self._gone.items():
            after = self._follows.get(position, NOTHING_STAGED)
            with self._session.scratch() as connection:
                tell_gone(connection, self._open[position].source_id, gone, after=after)
        self._gone.clear()
        for position, malformed in self._malformed.items():
            with self._session.scratch() as connection:
                tell_malformed(connection, self._open[position].source_id, malformed)
        self._malformed.clear()


def make_state(connection: Connection) -> None:
    """The row that ties the access model to the sources' records, where there is none yet."""
    if connection.execute(_STATE).first() is None:
        connection.execute(insert(STATE).values(state_id=1, generation=0, merged_generation=-1, merge_problems=0))
