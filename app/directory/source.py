"""The port of directory sources.

The contract is in ``app/directory/README.md``, "The contract of a source". In short, ``Source.read``

1. starts from the beginning each time it is called, and yields while it reads, in constant memory;
2. yields a ``Found`` for each record, a ``Malformed`` for each invalid object, and a ``Remark`` for oddities;
3. yields exactly one ``End``, last, with the verdict: complete, partial or failed;
4. raises no exception for anything that the outside world can cause, and puts no secret into a reason;
5. may answer a ``ReadRequest`` with less than everything, and then sets ``End.answered``.

``MalformedTally`` makes the ``End`` of sources that read objects, from those that are malformed.

A source judges its own records only. Duplicates, dangling references and cycles are found when sources are merged.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from app.access.records import Record
from app.foundation.text import counted

_Step = TypeVar("_Step")


class Verdict(StrEnum):
    """How far a read can be trusted."""

    COMPLETE = "complete"
    """Everything was read: what is missing from it is gone."""
    PARTIAL = "partial"
    """What was read is true, but something is missing: nothing is gone."""
    FAILED = "failed"
    """Not usable: the last good records stay in force."""


class ObjectId(NamedTuple):
    """The id of an object of a source, from which records are made."""

    set: str
    """The set that contains it: ``users``, ``groups``, or the name of a query."""
    id: str
    """Its permanent id in the set: an entryUUID, an objectGUID, a key column."""


class Origin(NamedTuple):
    """The object and the rule from which a record was made."""

    object: ObjectId
    rule: str = ""
    """The number of the rule, from 1. Empty if the source has no rules."""


class Found(NamedTuple):
    """A record, its place (``file:line``, ``file:users[3]``), and its origin if the source has objects."""

    record: Record
    place: str
    origin: Origin | None = None


class Gone(NamedTuple):
    """An object that does not exist any more, or of which no record is made any more. Only in incremental reads."""

    object: ObjectId


class Malformed(NamedTuple):
    """An object that could not be made a record. The reason names the field."""

    place: str
    reason: str
    object: ObjectId | None = None
    """The object, if it has a permanent id: the records that it provided before are kept."""
    disabled: bool = False
    """Whether its readable fields disable it: then the kept records are disabled."""


class Remark(NamedTuple):
    """Something odd about a record that is used anyway, or about the source."""

    place: str
    reason: str
    server_away: bool = False
    """Whether it is that one of several servers of the source could not be reached."""


class End(NamedTuple):
    """The verdict, with the reason unless it is complete."""

    verdict: Verdict
    reason: str = ""
    cursor: str = ""
    """The cursor for the next incremental read. Empty if only full reads are possible."""
    answered: "Answered | None" = None
    """What was read. None: everything."""
    except_malformed: bool = False
    """Whether only malformed objects are missing from a partial read, and each ``Malformed`` names its object."""
    login_refused: bool = False
    """Whether the directory refused the name or the password of a failed read. Polling stops after three of these,
    because directories lock accounts."""
    known_empty: bool = False
    """Whether a complete read is empty because nothing was pushed to the source so far."""


@dataclass(slots=True)
class MalformedTally:
    """The number of malformed objects of a read."""

    count: int = 0
    unnamed: int = 0
    """Those without a permanent id."""

    def counted(self, steps: Iterable[_Step]) -> Iterator[_Step]:
        """The steps, which are counted as they pass."""
        for step in steps:
            if isinstance(step, Malformed):
                self.count += 1
                self.unnamed += step.object is None
            yield step

    def end(self, noun: str, cursor: str = "", answered: "Answered | None" = None) -> End:
        """The end of a read in which nothing else is missing. ``noun``: the name of a malformed object."""
        if not self.count:
            return End(Verdict.COMPLETE, "", cursor, answered)
        return End(Verdict.PARTIAL, counted(self.count, noun), cursor, answered, except_malformed=not self.unnamed)


class Answered(StrEnum):
    """What a read was about, if it was not about everything."""

    CHANGES = "changes"
    """The objects that changed since the cursor: all records of each object, or ``Gone``. Each ``Found`` has an
    origin."""
    PART = "part"
    """The objects of ``ReadRequest.part``: all records of each object, or ``Gone``."""
    CURSOR_REFUSED = "cursorRefused"
    """Nothing: the source does not accept the cursor, so a full read is required. The verdict is failed."""


@dataclass(frozen=True, slots=True)
class Part:
    """The organizations, users and objects that a resync reads."""

    organization_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    objects: tuple[ObjectId, ...] = ()
    """The objects that provided the records of these organizations and users when they were read last."""
    aliases: tuple[str, ...] = ()
    """The aliases of these users, case-folded: a source may know its users by alias only."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What to read. A source may always answer with everything."""

    since: str = ""
    """The cursor of an earlier ``End``, to read only the changes since then. Empty: everything."""
    part: Part | None = None
    """Only this part. Never together with ``since``."""


EVERYTHING = ReadRequest()

Step = Found | Gone | Malformed | Remark | End
Reading = Iterator[Step]


class Source(Protocol):
    """A provider of records. The contract is at the top of this module."""

    @property
    def name(self) -> str:
        """The unique, permanent name of the source. Records are stored under it: a renamed source is a new one."""
        ...

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        """The records, ended by the verdict."""
        ...
