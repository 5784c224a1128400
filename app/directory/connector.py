"""The port of connectors: what reads a directory in its own terms, before rules make records of it.

A connector gives **objects**: plain JSON values with a set, a lasting id and a place. Rules (``app.directory.mapping``)
make records of them; connector and rules together are a source (``app.directory.source``), and a connector owes what a
source owes: one ``ObjectsEnd``, always and last; complete only when all was read; nothing raised that the outside world
can cause; reasons in one line, without a secret; memory that does not grow with the directory; a read that stops within
a second when its iterator is closed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from app.directory.source import EVERYTHING, Answered, Malformed, ObjectId, ReadRequest, Remark, Verdict

NO_NAMES: frozenset[str] = frozenset()
"""The attributes that rules name where they name none."""

ALL_ATTRIBUTES = "*"
"""Among the attributes that rules name: all of them, because an expression does not say which (``it[it.which]``)."""


class DirectoryObject(NamedTuple):
    """One thing of a directory, in plain values that an expression can be asked of.

    ``value`` holds texts, numbers, booleans, null, lists and objects of these, at most 32 deep; an attribute without a
    value is not in it. Times are ISO 8601 in UTC, GUIDs, SIDs and FILETIMEs text. Members are not in it: nothing that
    people write iterates over them.
    """

    id: ObjectId
    value: Mapping[str, object]
    place: str
    """Where it stands, for people: a DN, ``documents, row 17``."""
    names: tuple[str, ...] = ()
    """By which other objects name it as a member, in one spelling: a normalized DN, a ``memberUid``."""
    members: tuple[str, ...] = ()
    """The names of its direct members, in the same spelling, those told elsewhere (a primary group) included."""


@dataclass(frozen=True, slots=True)
class ObjectGone:
    """Among changes: an object that is not there any more, or does not belong to its set any more."""

    id: ObjectId


@dataclass(frozen=True, slots=True)
class ObjectsEnd:
    """The verdict on a read of objects; its fields are those of ``app.directory.source.End``."""

    verdict: Verdict
    reason: str = ""
    cursor: str = ""
    answered: Answered | None = None
    except_malformed: bool = False
    login_refused: bool = False


Objects = Iterator[DirectoryObject | ObjectGone | Malformed | Remark | ObjectsEnd]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What rules want to know of objects, so that a connector asks for that and no more."""

    attributes: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """set → the attributes that its rules name (``it.mail``: mail), as they spell them, or ``ALL_ATTRIBUTES``.

    A set that no rule reads is not in it.
    """
    members: frozenset[str] = NO_NAMES
    """The sets whose members are wanted (rules with ``each: members``)."""
    user_ids: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """set → the attribute that is the ``userId`` of its users, where a rule says so plainly (``userId: it.uid``)."""
    user_aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """set → the attribute by which records of its objects name a user, where rules say so plainly (``fill: it.mail``).
    """
    disabling: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """set → the attributes by which rules disable its objects. If no object has one of them, the reader may not see it,
    so an incremental read refuses its cursor."""


class Connector(Protocol):
    """Something that gives objects; its obligations stand at the top of this module."""

    def read(self, wanted: Wanted, request: ReadRequest = EVERYTHING) -> Objects:
        """What ``request`` asks for of the sets of ``wanted``, ended by its verdict."""
        ...
