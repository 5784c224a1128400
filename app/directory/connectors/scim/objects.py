"""The connector of SCIM sources: reads, from Usher's database, the resources that a directory has pushed.

The service stores what a directory pushes, and applies it at once (``app/service/scim/README.md``). A read provides
all resources again, each as one object, for example after a change of the rules. Each member of a group is an object of
its own for the access model, so that a change of one member does not affect the others.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import orjson
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.directory.connector import DirectoryObject, Objects, RequestedFields
from app.directory.connectors.scim.rules import GROUPS, USERS
from app.directory.mapping.rules import Rules
from app.directory.mapping.source import MappedSource, MappingObserver
from app.directory.source import EVERYTHING, Answered, End, ObjectId, Reading, ReadRequest, Verdict
from app.foundation.database.engine import reading
from app.foundation.database.statements import run

USER, GROUP = "User", "Group"

SET_OF_TYPE = {USER: USERS, GROUP: GROUPS}

ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"

OpenStore = Callable[[], AbstractContextManager[Engine | None]]
"""Opens Usher's database. None: it cannot be used."""

_CURSOR = "pushed"
"""The cursor of every complete read: what is pushed later is in force without a read."""

# Users come before groups, and groups in the order of ``_MEMBERS``. ``@bytes``: ``app.foundation.database.statements``.
_RESOURCES = """
SELECT resource_id, type, content FROM scim_resource
WHERE source_id = (SELECT source_id FROM directory_source WHERE name = :source) ORDER BY type DESC, resource_id @bytes
"""

_MEMBERS = """
SELECT group_id, value FROM scim_member
WHERE source_id = (SELECT source_id FROM directory_source WHERE name = :source) ORDER BY group_id @bytes, value @bytes
"""


def object_value(resource_id: str, type_: str, content: Mapping[str, object]) -> dict[str, object]:
    """The value of ``it`` for a resource: its attributes, those of the enterprise extension as ``enterprise``, and of
    users ``email`` and ``active``, which is always present."""
    value = {name: inner for name, inner in content.items() if name not in ("schemas", ENTERPRISE)}
    value["id"] = resource_id
    if type_ == USER:
        value["active"] = is_active(content)
        if ENTERPRISE in content:
            value["enterprise"] = content[ENTERPRISE]
        if (email := _email(content.get("emails"))) is not None:
            value["email"] = email
    return value


def is_active(content: Mapping[str, object]) -> bool:
    """Whether a user is active. ``active`` is null if a directory removed it from a disabled user."""
    return content.get("active", True) is True


def _email(emails: object) -> object:
    """The value of the primary address, otherwise of the first one for work, otherwise of the first one."""
    usable = [email for email in emails if email.get("value")] if isinstance(emails, list) else []
    usable.sort(key=lambda email: (email.get("primary") is not True, email.get("type") != "work"))
    return usable[0]["value"] if usable else None


def place_of(content: Mapping[str, object], resource_id: str) -> str:
    """The place of a resource in messages."""
    return str(content.get("userName") or content.get("displayName") or resource_id)


def member_object(group_id: str, user_id: str) -> ObjectId:
    """The object that provides the records of a member of a group."""
    return ObjectId(GROUPS, f"{group_id}/{user_id}")


class _Members(NamedTuple):
    """The members of a group."""

    group_id: str
    values: tuple[str, ...]


_NO_MEMBERS = _Members("", ())


class ScimConnector:
    """Reads all resources of a source from Usher's database."""

    def __init__(self, name: str, open_store: OpenStore | None) -> None:
        self._name = name
        self._open_store = open_store

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:  # noqa: ARG002 - the port's
        if self._open_store is None:
            yield End(Verdict.FAILED, "it is stored in Usher's database, which is not available here")
            return
        try:
            with self._open_store() as engine:
                if engine is None:
                    yield End(Verdict.FAILED, "Usher's database, where it is stored, is missing or not available")
                    return
                yield from self._objects(engine)
        except SQLAlchemyError as error:
            yield End(Verdict.FAILED, f"Usher's database, where it is stored, cannot be read: {type(error).__name__}")

    def _objects(self, engine: Engine) -> Objects:
        count = 0
        with reading(engine) as connection:
            members = (
                _Members(group_id, tuple(value for _, value in rows))
                for group_id, rows in groupby(run(connection, _MEMBERS, {"source": self._name}), key=itemgetter(0))
            )
            current = next(members, _NO_MEMBERS)
            for resource_id, type_, text in run(connection, _RESOURCES, {"source": self._name}):
                count += 1
                content = orjson.loads(text)
                if type_ == GROUP:
                    current = _members_until(resource_id, current, members)
                yield DirectoryObject(
                    ObjectId(SET_OF_TYPE[type_], resource_id),
                    object_value(resource_id, type_, content),
                    place_of(content, resource_id),
                    (resource_id,),
                    current.values if current.group_id == resource_id and type_ == GROUP else (),
                )
        yield End(Verdict.COMPLETE, cursor=_CURSOR, known_empty=not count)


def _members_until(group_id: str, current: _Members, following: Iterator[_Members]) -> _Members:
    """The members of the group, or of the next one if it has none."""
    while current.group_id and current.group_id < group_id:
        current = next(following, _NO_MEMBERS)
    return current


class ScimSource(MappedSource):
    """All users and groups that were pushed to a source. There are no changes to read."""

    def __init__(self, name: str, rules: Rules, open_store: OpenStore | None) -> None:
        super().__init__(name, ScimConnector(name, open_store), rules)

    def observed(self, request: ReadRequest, observer: MappingObserver | None) -> Reading:
        if request.since or request.part is not None:
            answered = Answered.CHANGES if request.since else Answered.PART
            return iter([End(Verdict.COMPLETE, cursor=request.since, answered=answered)])
        return super().observed(request, observer)

    def member_origin(self, group: ObjectId, member: ObjectId) -> ObjectId:
        return member_object(group.id, member.id)
