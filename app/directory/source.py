"""The port of directory sources: what a source owes those who read it.

The rules: ``app/directory/README.md``, "The port: what a source owes its readers".

An implementer of ``Source`` does this, in this order:

1. ``read`` starts from the beginning each time it is called and yields what it finds while it goes on, in memory that
   does not grow with the size of the directory.
2. Each record that can be understood is a ``Found``; one that cannot is a ``Malformed``, and the reading goes on after
   it. What is worth saying but does no harm is a ``Remark``. Records are made by ``casting.record_from_object``, which
   sees to it that ids, texts, times and further fields are such as every database and the backend can hold.
3. The last thing it yields is an ``End``, always and exactly once. The verdict is **complete** only when the source was
   read to its end and every record was understood: what it did not give is then taken as gone. It is **partial** when
   something is missing that may well exist (a malformed record, a page refused), and **failed** when what was read
   must not be used at all. If only malformed objects with lasting ids are missing (``except_malformed``), everything
   else is taken as complete.
4. It raises nothing for anything that the outside world can cause (a missing file, a lost connection, nonsense in the
   data): that is what ``Malformed`` and ``failed`` are for. Reasons are one line, in words, and carry no secret.
5. Asked for what changed, or for a part (``ReadRequest``), it gives that and says so in ``End.answered``. Everything
   will always do.

An implementer judges its own records only. Duplicates, references to what is nowhere and cycles are the business of
those who merge the sources, and do not make a read partial.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from app.access.records import Record


class Verdict(StrEnum):
    """How far what a source said may be trusted."""

    COMPLETE = "complete"
    """Read to its end; what it says is all that there is."""
    PARTIAL = "partial"
    """What it says is true, but something is missing: nothing is taken as gone."""
    FAILED = "failed"
    """Not usable: the last good records stay in force."""


class ObjectId(NamedTuple):
    """An object of a source: what its records were made from, and what its changes are told of."""

    set: str
    """Which of the source's sets it is in: ``users``, ``groups``, ``rows``, or the name of a query."""
    id: str
    """What identifies it there for good: an entryUUID, an objectGUID, a key column."""


class Origin(NamedTuple):
    """From what, and by what, a record was made."""

    object: ObjectId
    rule: str = ""
    """The rule that made the record of the object, where the source has rules: its number, counted from 1."""


SERVER_AWAY = "server away: "
"""How a remark begins if a source has several servers and one of them could not be reached."""


class Found(NamedTuple):
    """A record, where it stands (``file:line`` or ``file:users[3]``), and its origin, if the source has objects."""

    record: Record
    place: str
    origin: Origin | None = None


class Gone(NamedTuple):
    """Among changes: an object that is not there any more, or from which no record is made any more."""

    object: ObjectId


class Malformed(NamedTuple):
    """Something that should have been a record; the reason names the field."""

    place: str
    reason: str
    object: ObjectId | None = None
    """The object of which no record could be made, if it has a lasting id: what it provided before is kept."""
    disabled: bool = False
    """Whether the object is disabled according to what can be understood of it: what is kept of it is disabled."""


class Remark(NamedTuple):
    """Something odd about a record that is used all the same."""

    place: str
    reason: str


class End(NamedTuple):
    """The verdict, and for anything but complete the reason."""

    verdict: Verdict
    reason: str = ""
    cursor: str = ""
    """From where changes can be asked for next; empty: only everything can be."""
    answered: "Answered | None" = None
    """What the read was about, where that is not everything."""
    except_malformed: bool = False
    """Of a partial read: whether only malformed objects make it partial, each named by its ``Malformed``."""
    login_refused: bool = False
    """Of a failed read: whether the directory refused the name or the password. Polls stop after three of these reads,
    because directories lock accounts."""


class Answered(StrEnum):
    """What a read was about that did not read everything."""

    CHANGES = "changes"
    """The objects that changed since the cursor: of each, once, all of its records, or ``Gone``; of one that came and
    went meanwhile ``Gone`` as well. Each ``Found`` names its origin."""
    PART = "part"
    """The objects that were asked for by ``ReadRequest.part``: of each, all of its records, or ``Gone``."""
    CURSOR_REFUSED = "cursorRefused"
    """Nothing: the source does not accept the cursor, and has to be read as a whole. The verdict is failed."""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a directory that somebody wants to know about at once."""

    organization_ids: tuple[str, ...] = ()
    user_ids: tuple[str, ...] = ()
    objects: tuple[ObjectId, ...] = ()
    """The objects that gave the records of those organizations and users when they were read last."""
    aliases: tuple[str, ...] = ()
    """What else those users are called, case-folded: a source may know them by that alone."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What is asked of a source. One that can only give everything gives everything."""

    since: str = ""
    """The cursor of an earlier ``End``: what changed since then is enough. Empty: everything."""
    part: Part | None = None
    """Only this is wanted; never together with ``since``."""


EVERYTHING = ReadRequest()

Reading = Iterator[Found | Gone | Malformed | Remark | End]


class Source(Protocol):
    """Something that gives access records; its obligations stand at the top of this module."""

    @property
    def name(self) -> str:
        """What the source is called in the configuration, in reports and in the store; unique and lasting.

        The records in force are remembered under this name, so a source that is renamed is another source.
        """
        ...

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        """Everything that the source says, ended by its verdict."""
        ...
