"""The HTTP connector: reads the objects of sets, and the members of groups, from an API."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from time import sleep
from typing import TypeVar
from urllib.parse import quote, unquote

import orjson
import requests

from app.directory.connector import (
    ALL_ATTRIBUTES,
    CursorRefusedError,
    DirectoryObject,
    Objects,
    ReadError,
    RequestedFields,
)
from app.directory.connectors.http.client import HttpClient, RefusedError
from app.directory.connectors.http.paging import MAX_ID_BYTES, IncompleteError, PageReader, value_at
from app.directory.connectors.http.settings import ApiSetSettings, DeltaSettings, HttpSettings, MembersSettings
from app.directory.fields import MalformedRecordError, checked_text
from app.directory.source import (
    EVERYTHING,
    Answered,
    End,
    Gone,
    Malformed,
    MalformedTally,
    ObjectId,
    ReadRequest,
    Verdict,
)
from app.foundation.clock import Clock, utc_now

_REFERENCE = "$ref"

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class HttpConnector:
    def __init__(
        self, settings: HttpSettings, *, clock: Clock = utc_now, wait: Callable[[float], None] = sleep
    ) -> None:
        """``wait``: waits for seconds between two tries of a request."""
        self._settings = settings
        self._clock = clock
        self._wait = wait

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
        try:
            with closing(HttpClient(self._settings, clock=self._clock, wait=self._wait)) as client:
                yield from _Read(self._settings, client, wanted).steps(request.since)
        except ReadError as error:
            yield error.end


class _Read:
    """One read of the connector."""

    def __init__(self, settings: HttpSettings, client: HttpClient, wanted: RequestedFields) -> None:
        self._preset = settings.preset_in_force()
        self._max_in_flight = settings.max_in_flight
        self._pages = PageReader(client, self._preset)
        self._wanted = wanted
        sets = settings.sets_in_force()
        self._sets = {name: set_settings for name, set_settings in sets.items() if name in wanted.attributes}
        self._incomplete: list[str] = []

    def steps(self, since: str) -> Objects:
        """The objects, or those that changed since a cursor. Raises ``ReadError``."""
        # Taken before the read, so that the next read includes what changes meanwhile.
        links = self._links(since)
        tally = MalformedTally()
        if since:
            # Before the first object, because a refused cursor must yield none.
            parts = [partial(self._changed, name, ids) for name, ids in self._changes(links).items()]
        else:
            parts = [partial(self._objects, name) for name in self._sets]
        for part in parts:
            try:
                yield from tally.counted(part())
            except IncompleteError as error:
                self._incomplete.append(str(error))
        answered = Answered.CHANGES if since else None
        cursor = orjson.dumps(links).decode() if links else ""
        if self._incomplete:
            more = f"; and {len(self._incomplete) - 3:,} more" if len(self._incomplete) > 3 else ""
            yield End(Verdict.PARTIAL, "; ".join(self._incomplete[:3]) + more, "", answered)
        else:
            yield tally.end("malformed object", cursor, answered)

    # Complete reads.

    def _objects(self, name: str) -> Iterator[DirectoryObject | Malformed | Gone]:
        """The objects of a set, and those below them. Raises ``ReadError`` and ``IncompleteError``."""
        settings = self._sets[name]
        query = {**settings.query, **self._selection(name)}
        members = self._members_of(name)
        has_list = members is not None and members.path is not None
        total = None if settings.count is None else self._pages.count(settings.count, settings.query)
        paths, count = deque([settings.path or ""]), 0
        expanded: set[str] = set()
        while paths:
            for items in self._pages.pages(paths.popleft(), query, name):
                steps = [self._object(name, item, count + at) for at, item in enumerate(items, 1)]
                count += len(items)
                paths += _lists_below(settings, steps, items, expanded)
                yield from self._parallel(self._with_members, steps) if has_list else steps
        if total is not None and count != total:
            raise IncompleteError(f"{settings.path}: has {total:,} objects, but {count:,} were returned")

    def _members_of(self, name: str) -> MembersSettings | None:
        return self._sets[name].members if name in self._wanted.members else None

    def _selection(self, name: str, *more: str) -> Mapping[str, str]:
        """The query parameter with the attributes that are used, and ``more``. Empty if the API returns all."""
        settings, wanted = self._sets[name], self._wanted.attributes[name]
        if not self._preset.select or ALL_ATTRIBUTES in wanted:
            return {}
        return {self._preset.select: ",".join(sorted({settings.id, *settings.named_by, *wanted, *more}))}

    def _object(self, name: str, entry: object, number: int) -> DirectoryObject | Malformed:
        settings, wanted, members = self._sets[name], self._wanted.attributes[name], self._members_of(name)
        if not isinstance(entry, dict):
            return Malformed(f"{name}, object {number:,}", "is not a JSON object")
        object_: ObjectId | None = None
        try:
            object_ = ObjectId(name, _id(entry, settings.id))
            everything = ALL_ATTRIBUTES in wanted
            value = {key: inner for key, inner in entry.items() if inner is not None and (everything or key in wanted)}
            names = (_name_in(entry, (key,)) for key in settings.named_by)
            inline = () if members is None or not members.attribute else _inline_members(entry, members)
            place = f"{name} {object_.id}"
            return DirectoryObject(object_, value, place, tuple(dict.fromkeys(filter(None, names))), inline)
        except MalformedRecordError as error:
            place = f"{name}, object {number:,}" if object_ is None else f"{name} {object_.id}"
            return Malformed(place, str(error), object_)

    def _parallel(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """The results for all items, in their order, without those that were not read completely."""
        waiting: deque[Future[_Result]] = deque()
        pool = ThreadPoolExecutor(self._max_in_flight, thread_name_prefix="http source")
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > self._max_in_flight:
                    yield from self._complete(waiting.popleft())
            while waiting:
                yield from self._complete(waiting.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _complete(self, future: Future[_Result]) -> Iterator[_Result]:
        try:
            yield future.result()
        except IncompleteError as error:
            self._incomplete.append(str(error))

    def _with_members(self, step: DirectoryObject | Malformed) -> DirectoryObject | Malformed:
        """An object with its members, if these have a list. Raises ``ReadError`` and ``IncompleteError``."""
        members = None if isinstance(step, Malformed) else self._members_of(step.id.set)
        if isinstance(step, Malformed) or members is None or members.path is None:
            return step
        path = members.path.replace("{id}", quote(step.id.id, safe=""))
        names: dict[str, None] = {}
        try:
            for items in self._pages.pages(path, members.query, "members"):
                names |= dict.fromkeys(_member_names(items, members, path))
        except RefusedError as error:
            # It may have been deleted during the read.
            if error.status == requests.codes.not_found:
                raise IncompleteError(str(error)) from None
            raise
        except MalformedRecordError as error:
            raise IncompleteError(f"{path}: {error}") from None
        return step._replace(members=tuple(names))

    # Incremental reads.

    def _links(self, since: str) -> dict[str, str]:
        """Set → the link to its changes, or nothing if all reads are complete ones. Raises ``CursorRefusedError``."""
        deltas = {
            name: settings.delta
            for name, settings in self._sets.items()
            # An attribute that no object has may be hidden, which only a complete read notices.
            if settings.delta is not None
            and self._wanted.disabling.get(name, frozenset()) <= self._preset.always.get(name, frozenset())
        }
        has_deltas = len(deltas) == len(self._sets) > 0
        if not since:
            return {name: self._first_link(name, delta) for name, delta in deltas.items()} if has_deltas else {}
        try:
            links = orjson.loads(since)
        except orjson.JSONDecodeError:
            links = None
        is_own = isinstance(links, dict) and links.keys() == self._sets.keys()
        if not has_deltas or not is_own or not all(isinstance(link, str) for link in links.values()):
            raise CursorRefusedError("there are no changes since this cursor, so a complete read is required")
        return dict(links)

    def _first_link(self, name: str, delta: DeltaSettings) -> str:
        more = (delta.members,) if delta.members and self._members_of(name) is not None else ()
        return self._pages.first_link(delta.path, {**self._selection(name, *more), **delta.query})

    def _changes(self, links: dict[str, str]) -> Mapping[str, Mapping[str, bool]]:
        """Set → the ids of its changed objects → whether they were removed. There are none if a list is incomplete.

        Replaces the links by those to the next changes.
        """
        changes: dict[str, Mapping[str, bool]] = {}
        try:
            for name, settings in self._sets.items():
                changes[name], links[name] = self._pages.changes(links[name], settings.id)
        except IncompleteError as error:
            self._incomplete.append(str(error))
            return {}
        return changes

    def _changed(self, name: str, changed: Mapping[str, bool]) -> Iterator[DirectoryObject | Malformed | Gone]:
        """The changed objects of a set, as they are now."""
        yield from (Gone(ObjectId(name, id_)) for id_, is_removed in changed.items() if is_removed)
        ids = [ObjectId(name, id_) for id_, is_removed in changed.items() if not is_removed]
        yield from self._parallel(self._current, ids)

    def _current(self, object_: ObjectId) -> DirectoryObject | Malformed:
        """An object as it is now. The report of a change contains only some attributes and members.

        Raises ``IncompleteError`` if the server does not find it, because another replica of it may. If the object was
        deleted, the next changes contain it.
        """
        path = f"{self._sets[object_.set].path}/{quote(object_.id, safe='')}"
        item = self._pages.single(path, self._selection(object_.set))
        step = self._object(object_.set, item, 1)
        return step._replace(object=object_) if isinstance(step, Malformed) else self._with_members(step)


def _lists_below(
    settings: ApiSetSettings, steps: Sequence[DirectoryObject | Malformed], items: Sequence[object], known: set[str]
) -> Iterator[str]:
    """The paths of the lists below objects, which are added to ``known``. Raises ``IncompleteError`` for a cycle."""
    if settings.children is None:
        return
    for step, item in zip(steps, items, strict=True):
        # Without an id, the objects below are missing, too, and so the read is not except_malformed.
        object_ = step.object if isinstance(step, Malformed) else step.id
        if object_ is not None and value_at(item, settings.child_count) != 0:
            if object_.id in known:
                raise IncompleteError(f"{step.place}: is below itself")
            known.add(object_.id)
            yield settings.children.replace("{id}", quote(object_.id, safe=""))


def _id(item: Mapping[str, object], key: str) -> str:
    """The permanent id of an object. Raises ``MalformedRecordError``."""
    text = _name_in(item, (key,))
    if not text:
        raise MalformedRecordError(f"{key}: is missing, and identifies the object")
    if len(checked_text(text, key).encode()) > MAX_ID_BYTES:
        raise MalformedRecordError(f"{key}: is longer than {MAX_ID_BYTES} bytes")
    return text


def _name_in(item: Mapping[str, object], keys: Sequence[str]) -> str:
    """The text of the first of these keys that has one. Empty if none has."""
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
        name = _name_in(member, settings.named_by) if isinstance(member, dict) else member
        if not isinstance(name, str) or not name:
            raise MalformedRecordError(f"{place}: a member has no {' or '.join(settings.named_by)}")
        yield checked_text(name, place)
