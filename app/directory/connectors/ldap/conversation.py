"""A read from the connection to the verdict: everything, what changed, or a part."""

from collections.abc import Iterator

from app.directory.connector import DirectoryObject, ObjectGone, Objects, ObjectsEnd, Wanted
from app.directory.connectors.ldap import syncrepl, usn
from app.directory.connectors.ldap.objects import asks_for_silent
from app.directory.connectors.ldap.reading import Reader, batches
from app.directory.connectors.ldap.session import LdapSession, opened
from app.directory.connectors.ldap.settings import LdapConnectionSettings
from app.directory.connectors.ldap.trouble import (
    CursorRefusedError,
    LdapTroubleError,
    LoginRefusedError,
    ServerAwayError,
)
from app.directory.source import SERVER_AWAY, Answered, Malformed, ObjectId, Part, ReadRequest, Remark, Verdict
from app.foundation.clock import Clock

Told = Iterator[DirectoryObject | ObjectGone | Malformed]

_NOT_UNDERSTOOD = "{} object(s) were not understood"


class Conversations:
    """The reads of a directory. Each is with one server, from its beginning to its end."""

    def __init__(self, settings: LdapConnectionSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._failed = ""
        """The server that failed in the middle of the last read. The next read tries it last."""

    def read(self, wanted: Wanted, request: ReadRequest) -> Objects:
        """The objects of a read, ended by its verdict."""
        urls = sorted(self._settings.urls, key=lambda url: url == self._failed)
        self._failed = ""
        session: LdapSession | None = None
        try:
            with opened(self._settings, urls) as session:
                yield from _conversation(Reader(session, wanted, self._clock()), wanted, request)
        except LdapTroubleError as error:
            if session is not None and isinstance(error, ServerAwayError):
                self._failed = session.settings.server
            yield ObjectsEnd(Verdict.FAILED, str(error), login_refused=isinstance(error, LoginRefusedError))
        except CursorRefusedError as error:
            yield ObjectsEnd(Verdict.FAILED, str(error), answered=Answered.CURSOR_REFUSED)


def _conversation(reader: Reader, wanted: Wanted, request: ReadRequest) -> Objects:
    answered, server = None, reader.settings.server
    for reason in reader.session.away:
        yield Remark(server, f"{SERVER_AWAY}{reason}; {server} was read instead")
    cursor, no_cursor = ("", "") if request.part is not None else _cursor_now(reader, wanted, request.since)
    if request.part is not None:
        told, answered = _part(reader, wanted, request.part), Answered.PART
    elif request.since:
        told, answered = _changes(reader, wanted, request.since, cursor, no_cursor), Answered.CHANGES
    else:
        told = _everything(reader)
    malformed = unnamed = 0
    for one in told:
        if isinstance(one, Malformed):
            malformed += 1
            unnamed += one.object is None
        yield one
    for set_reader in reader.sets:
        yield from set_reader.remarks()
    if no_cursor:
        yield Remark(server, f"no changes can be asked for, so everything is read each time: {no_cursor}")
    if reader.partial:
        yield ObjectsEnd(Verdict.PARTIAL, reader.partial, "", answered)
    elif malformed:
        reason = _NOT_UNDERSTOOD.format(malformed)
        yield ObjectsEnd(Verdict.PARTIAL, reason, cursor, answered, except_malformed=not unnamed)
    else:
        yield ObjectsEnd(Verdict.COMPLETE, "", cursor, answered)


def _cursor_now(reader: Reader, wanted: Wanted, since: str) -> tuple[str, str]:
    """The cursor from which changes can be asked for after this read, or the reason why there is none."""
    if reader.preset.changes == "none":
        return "", ""
    filters = {one.name: one.filter for one in reader.sets}
    if why := asks_for_silent(reader.preset, filters, wanted.attributes):
        return "", why
    context = reader.session.naming_context(reader.settings.base)
    for one in reader.sets:
        if reader.session.naming_context(one.base) != context:
            return "", f"{one.where}.base is in another naming context than base; make it a source of its own"
    if reader.preset.changes == "usn":
        return usn.cursor_now(reader.session, reader.settings.base, reader.now)
    return syncrepl.cursor_now(reader.session, reader.settings.base, since)


def _everything(reader: Reader) -> Told:
    for one in reader.sets:
        yield from reader.objects(one)


def _changes(reader: Reader, wanted: Wanted, since: str, now: str, why_not: str) -> Told:
    if not now:
        raise CursorRefusedError(why_not or "this directory cannot tell of changes")
    if since != now:
        reader.refuse_if_hidden(wanted.disabling)
    yield from (
        usn.UsnChanges(reader, since, now)
        if reader.preset.changes == "usn"
        else syncrepl.SyncreplChanges(reader, since, now)
    )


def _part(reader: Reader, wanted: Wanted, part: Part) -> Told:
    """The objects that were asked for, those that are gone, and users whom the request names by an attribute."""
    reader.refuse_if_hidden(wanted.disabling)
    for one in reader.sets:
        sought = [thing.id for thing in part.objects if thing.set == one.name]
        left = dict.fromkeys(sought)
        given: set[str] = set()
        all_understood = True
        for thing in reader.by_ids(one, sought):
            if isinstance(thing, DirectoryObject):
                left.pop(thing.id.id, None)
                given.add(thing.id.id)
            elif thing.object is not None:
                left.pop(thing.object.id, None)
            else:
                all_understood = False
            yield thing
        for attributes, texts in ((wanted.user_ids, part.user_ids), (wanted.user_aliases, part.aliases)):
            attribute = attributes.get(one.name)
            if attribute is None:
                continue
            for some in batches(texts):
                for thing in reader.objects(one, one.value_filter(attribute, some)):
                    if not isinstance(thing, DirectoryObject):
                        yield thing
                    elif thing.id.id not in given:
                        given.add(thing.id.id)
                        left.pop(thing.id.id, None)
                        yield thing
        if all_understood:
            yield from (ObjectGone(ObjectId(one.name, id_)) for id_ in left)
