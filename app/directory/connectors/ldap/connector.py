"""The LDAP connector: reads the objects of sets completely, incrementally, or in part."""

from collections.abc import Collection, Iterator, Mapping

from app.directory.connector import CursorRefusedError, DirectoryObject, Objects, ReadError, RequestedFields
from app.directory.connectors.ldap import changes
from app.directory.connectors.ldap.objects import DN, Reader, SetReader, batches
from app.directory.connectors.ldap.session import LdapSession, Search, ServerUnavailableError, open_session
from app.directory.connectors.ldap.settings import LdapConnectionSettings
from app.directory.source import (
    EVERYTHING,
    SERVER_AWAY,
    Answered,
    End,
    Gone,
    Malformed,
    ObjectId,
    Part,
    ReadRequest,
    Remark,
    Verdict,
)
from app.foundation.clock import Clock, utc_now


class LdapConnector:
    """A directory in LDAP."""

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
    answered, server = None, reader.settings.server
    for reason in reader.session.unavailable:
        yield Remark(server, f"{SERVER_AWAY}{reason}; {server} was read instead")
    # Taken before the read, so that the next read includes what changes meanwhile.
    cursor, no_cursor = ("", "") if request.part is not None else changes.cursor_now(reader, wanted, request.since)
    if request.part is not None:
        _check_visible(reader, wanted.disabling)
        steps, answered = _part(reader, wanted, request.part), Answered.PART
    elif request.since:
        steps, answered = _changes(reader, wanted, request.since, cursor, no_cursor), Answered.CHANGES
    else:
        steps = (step for set_reader in reader.sets for step in reader.objects(set_reader))
    malformed = unnamed = 0
    for step in steps:
        if isinstance(step, Malformed):
            malformed += 1
            unnamed += step.object is None
        yield step
    for set_reader in reader.sets:
        yield from set_reader.remarks()
    if no_cursor:
        yield Remark(server, f"incremental reads are not possible, so each read is a full one: {no_cursor}")
    if reader.missing:
        yield End(Verdict.PARTIAL, reader.missing, "", answered)
    elif malformed:
        reason = f"{malformed} object(s) were not understood"
        yield End(Verdict.PARTIAL, reason, cursor, answered, except_malformed=not unnamed)
    else:
        yield End(Verdict.COMPLETE, "", cursor, answered)


def _changes(
    reader: Reader, wanted: RequestedFields, since: str, now: str, no_cursor: str
) -> Iterator[DirectoryObject | Gone | Malformed]:
    if not now:
        raise CursorRefusedError(no_cursor or "this directory has no incremental reads")
    if since != now:
        _check_visible(reader, wanted.disabling)
    yield from changes.changes_since(reader, since, now)


def _part(reader: Reader, wanted: RequestedFields, part: Part) -> Iterator[DirectoryObject | Gone | Malformed]:
    """The requested objects, and the users that the request names by an attribute."""
    for set_reader in reader.sets:
        ids = [object_.id for object_ in part.objects if object_.set == set_reader.name]
        missing = dict.fromkeys(ids)
        found: set[str] = set()
        all_understood = True
        for step in reader.by_ids(set_reader, ids):
            object_id = step.id if isinstance(step, DirectoryObject) else step.object
            if object_id is None:
                all_understood = False
            else:
                missing.pop(object_id.id, None)
            if isinstance(step, DirectoryObject):
                found.add(step.id.id)
            yield step
        for attributes, texts in ((wanted.user_ids, part.user_ids), (wanted.user_aliases, part.aliases)):
            if (attribute := attributes.get(set_reader.name)) is None:
                continue
            for batch in batches(texts):
                for step in reader.objects(set_reader, set_reader.value_filter(attribute, batch)):
                    if isinstance(step, DirectoryObject):
                        if step.id.id in found:
                            continue
                        found.add(step.id.id)
                        missing.pop(step.id.id, None)
                    yield step
        if all_understood:
            yield from (Gone(ObjectId(set_reader.name, id_)) for id_ in missing)


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
