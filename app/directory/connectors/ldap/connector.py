"""Reads users, groups and other entries from LDAP servers.

A *set* is one configured search. ``LdapConnector.read`` reads all sets, the changes since a cursor, or the requested
objects, and ends with a verdict.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain

from app.directory.connector import (
    ALL_ATTRIBUTES,
    CursorRefusedError,
    DirectoryObject,
    Objects,
    ReadError,
    RequestedFields,
)
from app.directory.connectors.ldap.cursors import NoCursorError
from app.directory.connectors.ldap.objects import DN, FILTER_SIZE, Reader, SetReader
from app.directory.connectors.ldap.session import LdapSession, Search, ServerUnavailableError, open_session
from app.directory.connectors.ldap.settings import LdapConnectionSettings
from app.directory.connectors.ldap.syncrepl import SyncreplChanges, csn_cursor
from app.directory.connectors.ldap.usn import UsnChanges, usn_cursor
from app.directory.source import (
    EVERYTHING,
    Answered,
    End,
    Gone,
    Malformed,
    MalformedTally,
    ObjectId,
    Part,
    ReadRequest,
    Remark,
    Verdict,
)
from app.foundation.batches import batches
from app.foundation.clock import Clock, utc_now


class LdapConnector:
    """A directory on one or several LDAP servers, of which the first that can be reached is read."""

    def __init__(self, settings: LdapConnectionSettings, clock: Clock = utc_now) -> None:
        self._settings = settings
        self._clock = clock
        self._failed_server = ""
        """The server that failed during the last read. The next read tries it last."""

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
        urls = sorted(self._settings.urls, key=lambda url: url == self._failed_server)
        self._failed_server = ""
        session: LdapSession | None = None
        try:
            with open_session(self._settings, urls) as session:
                yield from _read(Reader(session, wanted, self._clock()), wanted, request)
        except ReadError as error:
            if session is not None and isinstance(error, ServerUnavailableError):
                self._failed_server = session.settings.server
            yield error.end


def _read(reader: Reader, wanted: RequestedFields, request: ReadRequest) -> Objects:
    """The requested objects, with remarks before and after them, and the end."""
    server = reader.settings.server
    for reason in reader.session.unavailable:
        yield Remark(server, f"server away: {reason}; {server} was read instead", server_away=True)
    steps: Iterator[DirectoryObject | Gone | Malformed]
    answered, cursor, no_cursor = None, "", ""
    if request.part is not None:
        steps, answered = _part(reader, wanted, request.part), Answered.PART
    else:
        # Taken before the read, so that the next read includes what changes meanwhile.
        try:
            cursor = _cursor_now(reader, wanted, request.since)
        except NoCursorError as error:
            no_cursor = str(error)
        steps = chain.from_iterable(map(reader.objects, reader.sets))
        if request.since:
            if not cursor:
                raise CursorRefusedError(no_cursor or "this directory has no incremental reads")
            steps, answered = _changes(reader, wanted, request.since, cursor), Answered.CHANGES
    tally = MalformedTally()
    yield from tally.counted(steps)
    for set_reader in reader.sets:
        yield from set_reader.remarks()
    if no_cursor:
        yield Remark(server, f"incremental reads are not possible, so each read is a full one: {no_cursor}")
    if reader.incomplete_reason:
        yield End(Verdict.PARTIAL, reader.incomplete_reason, "", answered)
    else:
        yield tally.end("malformed object", cursor, answered)


def _cursor_now(reader: Reader, wanted: RequestedFields, since: str) -> str:
    """The cursor of a read that begins now. Empty if the preset has no incremental reads. Raises ``NoCursorError``."""
    session, preset = reader.session, reader.preset
    if preset.changes == "none":
        return ""
    _check_reported(reader, wanted)
    context = session.naming_context(reader.settings.base)
    for set_reader in reader.sets:
        if session.naming_context(set_reader.base) != context:
            where = f"{set_reader.where}.base"
            raise NoCursorError(f"{where} is in another naming context than base; make it a source of its own")
    session.root(refresh=True)
    return usn_cursor(session, context, reader.now) if preset.changes == "usn" else csn_cursor(session, context, since)


def _check_reported(reader: Reader, wanted: RequestedFields) -> None:
    """Raises ``NoCursorError`` if a filter or a rule uses an attribute whose changes the server does not report."""
    for attribute in sorted(reader.preset.silent):
        for set_reader in reader.sets:
            if re.search(rf"\({re.escape(attribute)}\s*[:~<>]?[^()]*=", set_reader.filter, re.IGNORECASE):
                where = f"sets.{set_reader.name}.filter uses"
                raise NoCursorError(f"{where} {attribute}, whose changes the server does not report")
        for name, attributes in wanted.attributes.items():
            # In Active Directory, all attributes include these.
            in_all = reader.preset.changes == "usn" and ALL_ATTRIBUTES in attributes
            if in_all or attribute.lower() in map(str.lower, attributes):
                raise NoCursorError(f"rules of {name} use {attribute}, whose changes the server does not report")


def _changes(
    reader: Reader, wanted: RequestedFields, since: str, now: str
) -> Iterator[DirectoryObject | Gone | Malformed]:
    """The changes between two cursors. Raises ``CursorRefusedError``."""
    if since != now:
        _check_visible(reader, wanted.disabling)
    protocol = UsnChanges if reader.preset.changes == "usn" else SyncreplChanges
    yield from protocol(reader, since, now).steps()


def _part(reader: Reader, wanted: RequestedFields, part: Part) -> Iterator[DirectoryObject | Gone | Malformed]:
    """The requested objects, and the users that the request names by an attribute."""
    _check_visible(reader, wanted.disabling)
    for set_reader in reader.sets:
        ids = [object_.id for object_ in part.objects if object_.set == set_reader.name]
        read: set[str] = set()
        malformed: set[str | None] = set()
        for step in reader.by_ids(set_reader, ids):
            if isinstance(step, DirectoryObject):
                read.add(step.id.id)
            else:
                malformed.add(None if step.object is None else step.object.id)
            yield step
        for step in _named_by_attribute(reader, set_reader, wanted, part):
            if isinstance(step, DirectoryObject):
                if step.id.id in read:
                    continue
                read.add(step.id.id)
            yield step
        # A malformed object without an id may be any of them.
        if None not in malformed:
            missing = [id_ for id_ in dict.fromkeys(ids) if id_ not in read and id_ not in malformed]
            yield from (Gone(ObjectId(set_reader.name, id_)) for id_ in missing)


def _named_by_attribute(
    reader: Reader, set_reader: SetReader, wanted: RequestedFields, part: Part
) -> Iterator[DirectoryObject | Malformed]:
    for attributes, texts in ((wanted.user_ids, part.user_ids), (wanted.user_aliases, part.aliases)):
        if (attribute := attributes.get(set_reader.name)) is not None:
            for batch in batches(texts, FILTER_SIZE):
                yield from reader.objects(set_reader, set_reader.value_filter(attribute, batch))


def _check_visible(reader: Reader, disabling: Mapping[str, Collection[str]]) -> None:
    """Raises ``CursorRefusedError`` if no object of a set has an attribute by which rules disable its objects.

    The reader may have lost the right to see it, and an incremental read would enable the changed objects. A full
    read fails in this case. ``disabling``: set → attributes. An attribute that all objects have needs no check: an
    object without it is malformed.
    """
    for set_reader in reader.sets:
        always = {name.lower() for name in (DN, *reader.preset.always.get(set_reader.name, ()))}
        for attribute in sorted(disabling.get(set_reader.name, ())):
            if attribute.lower() not in always and not _is_visible(reader, set_reader, attribute):
                raise CursorRefusedError(f"no object of {set_reader.name} has {attribute}, by which a rule disables")


def _is_visible(reader: Reader, set_reader: SetReader, attribute: str) -> bool:
    filter_ = f"(&{set_reader.filter}({attribute}=*))"
    search = Search(set_reader.base, filter_, [attribute], set_reader.scope, set_reader.where)
    entries = (entry for page in reader.session.pages(search, prefetch=False) for entry in page.entries)
    return any(name.lower() == attribute.lower() for entry in entries for name in entry.attributes)
