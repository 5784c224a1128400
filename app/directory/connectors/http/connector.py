"""The HTTP connector: reads the objects of sets, and the members of groups, from an API."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from time import sleep
from urllib.parse import quote, unquote

from app.directory.connector import (
    ALL_ATTRIBUTES,
    CursorRefusedError,
    DirectoryObject,
    Objects,
    ReadError,
    RequestedFields,
)
from app.directory.connectors.http.client import HttpClient, RefusedError
from app.directory.connectors.http.paging import IncompleteError, PageReader, value_at
from app.directory.connectors.http.settings import ApiSetSettings, HttpSettings, MembersSettings
from app.directory.fields import MalformedRecordError, checked_text
from app.directory.source import EVERYTHING, End, Malformed, ObjectId, ReadRequest, Verdict
from app.foundation.clock import Clock, utc_now
from app.foundation.text import counted

MAX_ID_BYTES = 255

_REFERENCE = "$ref"


class HttpConnector:
    """An API of an identity provider. Each read is a full one."""

    def __init__(
        self, settings: HttpSettings, *, clock: Clock = utc_now, wait: Callable[[float], None] = sleep
    ) -> None:
        """``wait``: waits for seconds between two tries of a request."""
        self._settings = settings
        self._clock = clock
        self._wait = wait

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
        if request.since:
            yield CursorRefusedError("this API is read completely each time").end
            return
        try:
            with closing(HttpClient(self._settings, clock=self._clock, wait=self._wait)) as client:
                yield from _Read(self._settings, client, wanted).steps()
        except ReadError as error:
            yield error.end


class _Read:
    """One read."""

    def __init__(self, settings: HttpSettings, client: HttpClient, wanted: RequestedFields) -> None:
        self._sets = settings.sets_in_force()
        self._max_in_flight = settings.max_in_flight
        self._pages = PageReader(client, settings.preset_in_force())
        self._wanted = wanted
        self._incomplete: list[str] = []

    def steps(self) -> Objects:
        malformed = unnamed = 0
        for name, settings in self._sets.items():
            if name not in self._wanted.attributes:
                continue
            try:
                for step in self._objects(name, settings):
                    if isinstance(step, Malformed):
                        malformed += 1
                        unnamed += step.object is None
                    yield step
            except IncompleteError as error:
                self._incomplete.append(str(error))
        if self._incomplete:
            more = f"; and {len(self._incomplete) - 3:,} more" if len(self._incomplete) > 3 else ""
            yield End(Verdict.PARTIAL, "; ".join(self._incomplete[:3]) + more)
        elif malformed:
            yield End(Verdict.PARTIAL, counted(malformed, "malformed object"), except_malformed=not unnamed)
        else:
            yield End(Verdict.COMPLETE)

    def _objects(self, name: str, settings: ApiSetSettings) -> Iterator[DirectoryObject | Malformed]:
        """The objects of a set, and those below them. Raises ``ReadError`` and ``IncompleteError``."""
        total = None if settings.count is None else self._pages.count(settings.count)
        members = settings.members if name in self._wanted.members else None
        paths, expanded, count = deque([settings.path or ""]), set[str](), 0
        while paths:
            for items in self._pages.pages(paths.popleft(), settings.query, name):
                found = [self._object(name, settings, members, item, count + at) for at, item in enumerate(items, 1)]
                count += len(items)
                if settings.children is not None:
                    for step, item in zip(found, items, strict=True):
                        if isinstance(step, DirectoryObject) and value_at(item, settings.child_count) != 0:
                            if step.id.id in expanded:
                                raise IncompleteError(f"{step.place}: is below itself")
                            expanded.add(step.id.id)
                            paths.append(settings.children.replace("{id}", quote(step.id.id, safe="")))
                yield from found if members is None or members.path is None else self._with_members(found, members)
        if total is not None and count != total:
            raise IncompleteError(f"{settings.path}: has {total:,} objects, but {count:,} were returned")

    def _object(
        self, name: str, settings: ApiSetSettings, members: MembersSettings | None, entry: object, number: int
    ) -> DirectoryObject | Malformed:
        object_: ObjectId | None = None
        try:
            item = _checked(entry)
            object_ = ObjectId(name, _id(item, settings.id))
            wanted = self._wanted.attributes[name]
            value = {
                key: inner
                for key, inner in item.items()
                if inner is not None and (key in wanted or ALL_ATTRIBUTES in wanted)
            }
            names = (_name_in(item, (key,)) for key in settings.named_by)
            inline = () if members is None or not members.attribute else _inline_members(item, members)
            place = f"{name} {object_.id}"
            return DirectoryObject(object_, value, place, tuple(dict.fromkeys(filter(None, names))), inline)
        except MalformedRecordError as error:
            return Malformed(
                f"{name}, object {number:,}" if object_ is None else f"{name} {object_.id}", str(error), object_
            )

    def _with_members(
        self, found: Sequence[DirectoryObject | Malformed], settings: MembersSettings
    ) -> Iterator[DirectoryObject | Malformed]:
        """The objects with their members, which are read in parallel."""
        waiting: deque[tuple[DirectoryObject | Malformed, Future[Sequence[str]] | None]] = deque()
        pool = ThreadPoolExecutor(self._max_in_flight, thread_name_prefix="members")
        try:
            for step in found:
                waiting.append(
                    (step, pool.submit(self._members, step, settings) if type(step) is DirectoryObject else None)
                )
                if len(waiting) > self._max_in_flight:
                    yield from self._awaited(*waiting.popleft())
            while waiting:
                yield from self._awaited(*waiting.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _awaited(
        self, step: DirectoryObject | Malformed, members: Future[Sequence[str]] | None
    ) -> Iterator[DirectoryObject | Malformed]:
        """The object, unless its members were not read completely."""
        if members is None or not isinstance(step, DirectoryObject):
            yield step
            return
        try:
            yield step._replace(members=tuple(members.result()))
        except IncompleteError as error:
            self._incomplete.append(str(error))

    def _members(self, step: DirectoryObject, settings: MembersSettings) -> Sequence[str]:
        path = (settings.path or "").replace("{id}", quote(step.id.id, safe=""))
        found: dict[str, None] = {}
        try:
            for items in self._pages.pages(path, settings.query, "members"):
                found |= dict.fromkeys(_member_names(items, settings, path))
        except RefusedError as error:
            # It may have been deleted during the read.
            if error.status == 404:
                raise IncompleteError(str(error)) from None
            raise
        except MalformedRecordError as error:
            raise IncompleteError(f"{path}: {error}") from None
        return list(found)


def _checked(item: object) -> Mapping[str, object]:
    if not isinstance(item, dict):
        raise MalformedRecordError("is not a JSON object")
    return item


def _id(item: Mapping[str, object], key: str) -> str:
    """The permanent id of an object. Raises ``MalformedRecordError``."""
    text = _name_in(item, (key,))
    if not text:
        raise MalformedRecordError(f"{key}: is missing, and identifies the object")
    if len(checked_text(text, key).encode()) > MAX_ID_BYTES:
        raise MalformedRecordError(f"{key}: is longer than {MAX_ID_BYTES} bytes")
    return text


def _name_in(item: Mapping[str, object], keys: Sequence[str]) -> str:
    """The text of the first of these keys that has one; empty if none has."""
    for key in keys:
        value = value_at(item, key)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return unquote(str(value).rstrip("/").rpartition("/")[2]) if key == _REFERENCE else str(value)
    return ""


def _inline_members(item: Mapping[str, object], settings: MembersSettings) -> tuple[str, ...]:
    members = value_at(item, settings.attribute)
    if members is None:
        return ()
    if not isinstance(members, list):
        raise MalformedRecordError(f"{settings.attribute}: is not a list")
    return tuple(dict.fromkeys(_member_names(members, settings, settings.attribute)))


def _member_names(members: Sequence[object], settings: MembersSettings, place: str) -> Iterator[str]:
    """The names of members. Raises ``MalformedRecordError`` for a member without one."""
    for member in members:
        name = (
            member
            if isinstance(member, str)
            else _name_in(member, settings.named_by)
            if isinstance(member, dict)
            else ""
        )
        if not name:
            raise MalformedRecordError(f"{place}: a member has no {' or '.join(settings.named_by)}")
        yield checked_text(name, place)
