"""The interface of connectors. A connector reads a directory's objects.

Mapping rules (``app.directory.mapping``) create records from the objects. A connector together with its rules is a
source, so a connector must fulfil the contract of sources (``app.directory.source``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from app.directory.source import EVERYTHING, Answered, End, Gone, Malformed, ObjectId, ReadRequest, Remark, Verdict

ALL_ATTRIBUTES = "*"
"""Means every attribute in a set of names, because an expression computes the name (``it[it.which]``)."""


class ReadError(Exception):
    """A failed read. The message is one line without secrets: the setting, the cause, and the remedy."""

    login_refused = False
    answered: Answered | None = None

    @property
    def end(self) -> End:
        return End(Verdict.FAILED, str(self), answered=self.answered, login_refused=self.login_refused)


class LoginRefusedError(ReadError):
    """The directory refused the name or the password."""

    login_refused = True


class CursorRefusedError(ReadError):
    """The changes since the cursor cannot be read. A full read is required."""

    answered = Answered.CURSOR_REFUSED


class UnreadableValueError(ValueError):
    """A value that cannot be converted. The message continues a sentence that begins with the attribute's name."""


class DirectoryObject(NamedTuple):
    """An object of a directory, in plain values for expressions.

    ``value`` contains text, numbers, booleans, lists and objects, nested at most 32 deep. Attributes without a value
    are missing. Times are ISO 8601 in UTC. GUIDs, SIDs and FILETIMEs are text. Members are separate, because
    expressions must not iterate over them.
    """

    id: ObjectId
    value: Mapping[str, object]
    place: str
    """Where it is, for messages: a DN, or ``documents, row 17``."""
    names: tuple[str, ...] = ()
    """The normalized names by which groups refer to it: a DN, a ``memberUid``."""
    members: tuple[str, ...] = ()
    """The normalized names of its direct members, including those by primary group."""


Objects = Iterator[DirectoryObject | Gone | Malformed | Remark | End]


@dataclass(frozen=True, slots=True)
class RequestedFields:
    """The attributes and members that rules use. A connector requests nothing else."""

    attributes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """set → the attributes that its rules name, in their spelling, or ``ALL_ATTRIBUTES``. Sets without rules are
    missing."""
    members: frozenset[str] = frozenset()
    """The sets whose members are needed (rules with ``each: members``)."""
    user_ids: Mapping[str, str] = field(default_factory=dict)
    """set → the attribute that is the ``userId`` of its users, if a rule is as simple as ``userId: it.uid``."""
    user_aliases: Mapping[str, str] = field(default_factory=dict)
    """set → the attribute by which its records name users by alias, if rules are as simple as ``fill: it.mail``."""
    disabling: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """set → the attributes by which rules disable its objects. If no object has one of them, the reader may lack the
    right to see it: an incremental read must refuse its cursor."""


class Connector(Protocol):
    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
        """The requested objects of the sets in ``wanted``. The last item is an ``End``."""
        ...
