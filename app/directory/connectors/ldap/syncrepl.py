"""Incremental reads of OpenLDAP, by content synchronization (RFC 4533)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

import ldap
import orjson
from ldap.controls import LDAPControl
from ldap.syncrepl import SyncDoneControl, SyncInfoMessage, SyncRequestControl, SyncStateControl

from app.directory.connector import CursorRefusedError, DirectoryObject
from app.directory.connectors.ldap.cursors import FOREIGN_CURSOR, NoCursorError, container_changed, newest
from app.directory.connectors.ldap.objects import Reader
from app.directory.connectors.ldap.session import LdapSession, Search, message_of, search_error
from app.directory.connectors.ldap.values import LdapEntry
from app.directory.source import Gone, Malformed, ObjectId

_CONTAINERS = (
    "(|(objectClass=organizationalUnit)(objectClass=organization)(objectClass=dcObject)(objectClass=domain)"
    "(objectClass=locality)(objectClass=country))"
)
"""Entries that contain others. A move of one changes the DNs of the entries in it, which the server does not report."""

_CSN = re.compile(r"[0-9]{14}(?:\.[0-9]{6})?Z#[0-9a-f]{6}#[0-9a-f]{3}#[0-9a-f]{6}")

_CSN_ATTRIBUTES = ("entryUUID", "entryCSN")

_MAX_CHANGES = 5_000
"""More changes than this are read faster by a full read."""

_REFRESH_REQUIRED = 4096
"""The result code e-syncRefreshRequired."""

_LOG_TOO_SHORT = "the server's session log does not reach back that far (set by syncprov-sessionlog)"


class _CsnCursor(NamedTuple):
    """The state of a server when a read began."""

    csns: Sequence[str]
    """The server's ``contextCSN``, so that a full read can use pages, which are several times faster."""
    newest: Mapping[str, str]
    """The entries that changed last: UUID → CSN."""
    server: str

    @classmethod
    def parse(cls, text: str) -> "_CsnCursor":
        """Raises ``CursorRefusedError``."""
        try:
            fields = orjson.loads(text)
            entries = {str(UUID(uuid)): str(csn) for uuid, csn in fields["newest"].items()}
            cursor = cls([str(csn) for csn in fields["csn"]], entries, str(fields.get("of")))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CursorRefusedError(FOREIGN_CURSOR) from None
        # A server would ignore an invalid cookie, and report everything as changed.
        if not cursor.csns or not entries or not all(_CSN.fullmatch(csn) for csn in (*cursor.csns, *entries.values())):
            raise CursorRefusedError(FOREIGN_CURSOR)
        return cursor

    def to_json(self) -> str:
        return orjson.dumps({"csn": self.csns, "newest": self.newest, "of": self.server}).decode()


def csn_cursor(session: LdapSession, context: str, since: str) -> str:
    """The cursor of a read that begins now, after the cursor ``since``. Raises ``NoCursorError``."""
    if SyncRequestControl.controlType.encode() not in session.root().values("supportedControl"):
        raise NoCursorError("the server does not report changes (overlay syncprov)")
    csns = sorted(value.decode() for value in session.entry(context, ["contextCSN"]).values("contextCSN"))
    if not csns:
        raise NoCursorError("the reader may not see contextCSN at the suffix, or the overlay syncprov is missing")
    last_changed = _last_changed(session, context, since, csns)
    if not last_changed:
        raise NoCursorError("the reader may not see entryUUID and entryCSN, which show a restored server")
    return _CsnCursor(csns, last_changed, session.settings.server).to_json()


def _last_changed(session: LdapSession, context: str, since: str, csns: Sequence[str]) -> Mapping[str, str]:
    """``_CsnCursor.newest`` for the CSNs of a cursor, after the cursor ``since``."""
    before: Sequence[str] = []
    known: Mapping[str, str] = {}
    with suppress(CursorRefusedError):
        before, known, _ = _CsnCursor.parse(since)
    if before == csns:
        return known
    last = max(csns)
    # Without a cursor: from the beginning of the minute, then of the day, of the last change.
    starts = [max(before)] if before else [f"{last[:size]:0<14}.000000Z#000000#000#000000" for size in (12, 8)]
    known_filter = "".join(f"(entryUUID={uuid})" for uuid in known)
    for filter_ in (*(f"(|{known_filter}(entryCSN>={start}))" for start in starts), "(entryCSN=*)"):
        pages = session.pages(Search(context, filter_, _CSN_ATTRIBUTES))
        if found := [item for page in pages for item in map(_csn, page.entries) if all(item)]:
            return newest(found)
    return {}


def _csn(entry: LdapEntry) -> tuple[str, str]:
    return entry.text("entryUUID"), entry.text("entryCSN")


class SyncreplChanges:
    """The changes between two cursors. Raises ``CursorRefusedError`` before it yields anything.

    While the server's session log reaches back to the cursor, it reports deleted entries. Beyond it, the server reports
    all entries that still exist. A full read is faster then.
    """

    def __init__(self, reader: Reader, since: str, now: str) -> None:
        self._before, self._now = _CsnCursor.parse(since), _CsnCursor.parse(now)
        if self._before.server != self._now.server:
            raise CursorRefusedError("another server answers than before")
        self._reader = reader
        self._context = reader.session.naming_context(reader.settings.base)
        self._limit = _MAX_CHANGES
        """The number of changes that may still be read."""

    def steps(self) -> Iterator[DirectoryObject | Gone | Malformed]:
        if self._before == self._now:
            return
        missing = self._missing() - self._check_containers()
        if missing:
            raise CursorRefusedError(f"entry {min(missing)} does not exist any more: the server was restored")
        by_set = [
            self._search(Search(set_.base, set_.filter, set_.attributes, set_.scope, set_.where))
            for set_ in self._reader.sets
        ]
        for set_reader, entries in zip(self._reader.sets, by_set, strict=True):
            for entry in entries:
                if isinstance(entry, LdapEntry):
                    yield from self._reader.objects_of(set_reader, [entry])
                else:
                    yield Gone(ObjectId(set_reader.name, entry))

    def _missing(self) -> set[str]:
        """The remembered entries that do not exist. Raises ``CursorRefusedError`` if one of the others is older."""
        before = self._before.newest
        filter_ = f"(|{''.join(f'(entryUUID={uuid})' for uuid in before)})"
        found = dict(map(_csn, self._reader.session.entries(Search(self._context, filter_, _CSN_ATTRIBUTES))))
        for uuid, csn in found.items():
            if csn < before.get(uuid, ""):
                raise CursorRefusedError(f"entry {uuid} has an older state than before: the server was restored")
        return before.keys() - found.keys()

    def _check_containers(self) -> set[str]:
        """Raises ``CursorRefusedError`` if an old container changed: the entries in it may have other DNs now.

        The search covers the whole naming context, because a container may have been moved out of the base. Returns the
        UUIDs of entries that were deleted, or that changed and are not containers.
        """
        then = max(csn[:14] for csn in self._before.csns)
        others = set[str]()
        for entry in self._search(Search(self._context, _CONTAINERS, ["createTimestamp"])):
            if isinstance(entry, str):
                others.add(entry)
            elif entry.text("createTimestamp")[:14] <= then:
                raise container_changed(entry)
        return others

    def _search(self, search: Search) -> list[LdapEntry | str]:
        """The entries that changed, and the UUIDs of deleted ones."""
        session = self._reader.session
        cookie = f"rid=000,csn={';'.join(self._before.csns)}"
        message = session.begin(search, SyncRequestControl(cookie=cookie, mode="refreshOnly"))
        try:
            return self._receive(message, search)
        except CursorRefusedError:
            # The server may be about to send all entries.
            session.abandon(message)
            raise

    def _receive(self, message: int, search: Search) -> list[LdapEntry | str]:
        session = self._reader.session
        found: list[LdapEntry | str] = []
        try:
            while True:
                kind, data, _, controls, _, _ = session.connection.result4(
                    message, 0, session.settings.answer_timeout, add_ctrls=1, add_intermediates=1
                )
                if kind == ldap.RES_SEARCH_RESULT:
                    done = next((control for control in controls if isinstance(control, SyncDoneControl)), None)
                    if done is None or not done.refreshDeletes:
                        raise CursorRefusedError(_LOG_TOO_SHORT)
                    return found
                found += _deleted_uuids(data) if kind == ldap.RES_INTERMEDIATE else _changed_entries(data)
                if len(found) > self._limit:
                    raise CursorRefusedError(f"more than {_MAX_CHANGES:,} objects have changed since then")
        except (ldap.SIZELIMIT_EXCEEDED, ldap.UNWILLING_TO_PERFORM) as error:
            # For example "consumer state is newer than provider": the server was restored.
            raise CursorRefusedError(f"the server does not accept the cursor: {message_of(error)}") from error
        except ldap.LDAPError as error:
            if error.args and isinstance(error.args[0], dict) and error.args[0].get("result") == _REFRESH_REQUIRED:
                raise CursorRefusedError("the server does not accept the cursor") from error
            if isinstance(error, ldap.TIMEOUT):
                session.abandon(message)
            raise search_error(error, session.settings, search.where) from error
        finally:
            self._limit -= len(found)


def _changed_entries(
    data: Sequence[tuple[str | None, Mapping[str, Sequence[bytes]], Sequence[LDAPControl]]],
) -> Iterator[LdapEntry | str]:
    for dn, attributes, controls in data:
        state = next((control for control in controls if isinstance(control, SyncStateControl)), None)
        if state is None or dn is None:
            continue
        if state.state == "present":
            raise CursorRefusedError(_LOG_TOO_SHORT)
        yield state.entryUUID if state.state == "delete" else LdapEntry(dn, attributes)


def _deleted_uuids(data: Sequence[tuple[str, bytes, object]]) -> Iterator[str]:
    for name, value, _ in data:
        ids = SyncInfoMessage(value).syncIdSet if name == SyncInfoMessage.responseName else None
        if ids is None:
            continue
        if not ids["refreshDeletes"]:
            raise CursorRefusedError(_LOG_TOO_SHORT)
        yield from map(str, ids["syncUUIDs"])
