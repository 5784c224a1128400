"""Incremental reads of LDAP: of Active Directory by ``uSNChanged``, and of OpenLDAP by content synchronization.

A cursor also contains the objects that changed last. If one of them is missing or older, the server was restored, and
the cursor is refused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import ldap
import orjson
from ldap.controls import LDAPControl
from ldap.syncrepl import SyncDoneControl, SyncInfoMessage, SyncRequestControl, SyncStateControl

from app.directory.connector import CursorRefusedError, DirectoryObject
from app.directory.connectors.ldap.objects import Reader
from app.directory.connectors.ldap.session import (
    EXTENDED_DN,
    SHOW_DELETED,
    LdapSession,
    Search,
    message_of,
    search_error,
)
from app.directory.connectors.ldap.values import LdapEntry, filter_bytes, normalized, to_filetime
from app.directory.source import Gone, Malformed, ObjectId
from app.foundation.text import printable

_REMEMBERED = 16
"""Objects that changed last, in a cursor."""

_CURSOR_IS_FOREIGN = "the cursor is not one of this source's"


class NoCursorError(Exception):
    """Incremental reads are not possible, for the reason in the message."""


def _container_changed(entry: LdapEntry) -> CursorRefusedError:
    return CursorRefusedError(
        f"{printable(entry.dn, limit=100)} was changed, and objects in it may have been moved with it"
    )


# Active Directory.

_DELETED_OBJECTS = "<WKGUID=18E2EA80684F11D2B9AA00C04F79F805,{}>"
"""The container of tombstones, by its well-known GUID."""

_FIRST_SPAN = 64
"""USNs below the highest one that are searched first for the objects that changed last."""

_USN_ATTRIBUTES = ("objectGUID", "uSNChanged")

_AD_CONTAINERS = frozenset(
    b"organizationalunit container organization country locality domaindns builtindomain lostandfound"
    b" msexchsystemobjectscontainer".split()
)
"""Classes of entries that contain others. A move of one does not change the ``uSNChanged`` of the entries in it."""


def usn_cursor(session: LdapSession, context: str, now: datetime) -> str:
    """The cursor of a read that begins now. Raises ``NoCursorError``.

    It names the domain controller's database (``invocationId``), because USNs are local to it.
    """
    usn, service = (session.root().text(name) for name in ("highestCommittedUSN", "dsServiceName"))
    if not usn.isdigit() or not service:
        raise NoCursorError("the server does not report highestCommittedUSN: is it Active Directory?")
    invocation_id = session.entry(service, ["invocationId"]).first("invocationId")
    if not invocation_id:
        raise NoCursorError("the reader may not see the server's invocationId, which cursors need")
    container = _DELETED_OBJECTS.format(context)
    deleted = session.find(Search(container, "(objectClass=*)", ["isDeleted"], "base", controls=[SHOW_DELETED]))
    if not any(entry.attributes for entry in deleted):
        raise NoCursorError(
            "the reader may not see deleted objects (the container Deleted Objects; dsacls … /G READER:LCRP grants the"
            " right)"
        )
    newest = _newest_by_usn(session, context, int(usn))
    if not newest:
        raise NoCursorError("the reader may not see uSNChanged, which shows changes and a restored server")
    cursor = {"usn": int(usn), "of": invocation_id.hex(), "newest": newest, "at": now.isoformat()}
    return orjson.dumps(cursor).decode()


def _newest_by_usn(session: LdapSession, context: str, usn: int) -> dict[str, int]:
    """The objects that changed last, including deleted ones: GUID → ``uSNChanged``."""
    span = _FIRST_SPAN
    while True:
        found = [item for item in _usns(session, context, f"(uSNChanged>={max(usn - span, 0) + 1})") if item[1] <= usn]
        if found or span >= usn:
            return dict(sorted(found, key=lambda item: item[1], reverse=True)[:_REMEMBERED])
        span *= 8


def _usns(session: LdapSession, context: str, filter_: str) -> Iterator[tuple[str, int]]:
    for page in session.pages(Search(context, filter_, _USN_ATTRIBUTES, controls=[SHOW_DELETED])):
        for entry in page.entries:
            if entry.guid and (usn := entry.number("uSNChanged")):
                yield entry.guid, usn


class UsnChanges:
    """The changes between two cursors: objects whose ``uSNChanged`` has grown, tombstones, and expired accounts.

    Raises ``CursorRefusedError``.

    A change may move an object out of a set. So the search covers the whole naming context. A changed object that the
    search for the set does not find is gone from the set. An expired account has no change, so the cursor contains the
    time of its read.
    """

    def __init__(self, reader: Reader, since: str, now: str) -> None:
        try:
            before, current = orjson.loads(since), orjson.loads(now)
            self._usn, invocation_id = int(before["usn"]), str(before["of"])
            newest = {str(UUID(guid)): int(usn) for guid, usn in before["newest"].items()}
            lowest = min(newest.values())
            self._then = to_filetime(datetime.fromisoformat(before["at"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CursorRefusedError(_CURSOR_IS_FOREIGN) from None
        if invocation_id != current["of"]:
            raise CursorRefusedError("another domain controller answers than before, or its database was restored")
        if not 0 <= self._usn <= current["usn"]:
            raise CursorRefusedError("the domain controller is behind the cursor: it was restored")
        self._reader = reader
        self._context = reader.session.naming_context(reader.settings.base)
        self._is_unchanged = before | {"at": ""} == current | {"at": ""}
        """Accounts may have expired nevertheless."""
        if not self._is_unchanged:
            self._check_not_restored(newest, lowest)

    def __iter__(self) -> Iterator[DirectoryObject | Gone | Malformed]:
        newer = "" if self._is_unchanged else f"(uSNChanged>={self._usn + 1})"
        changed, groups = self._changed(newer) if newer else ({}, [])
        for set_reader in self._reader.sets:
            condition = newer + set_reader.expired_since(self._then)
            if not condition:
                continue
            missing = dict(changed)
            all_understood = True
            for step in self._reader.objects(set_reader, f"(&{set_reader.filter}(|{condition}))"):
                object_id = step.id if isinstance(step, DirectoryObject) else step.object
                if object_id is None:
                    all_understood = False
                else:
                    missing.pop(object_id.id, None)
                yield step
            # A malformed object without an id may be any of them that is not deleted.
            for guid, is_deleted in missing.items():
                if is_deleted or all_understood:
                    yield Gone(ObjectId(set_reader.name, guid))
            if set_reader.member_attributes:
                yield from self._reader.by_ids(set_reader, [guid for guid in groups if guid not in changed])

    def _changed(self, newer: str) -> tuple[Mapping[str, bool], Sequence[str]]:
        """The changed objects (GUID → whether it is deleted), and the unchanged groups with new primary members."""
        changed: dict[str, bool] = {}
        primary: set[str] = set()
        attributes = ["objectGUID", "uSNCreated", "primaryGroupID", "isDeleted", "objectClass"]
        for page in self._reader.session.pages(Search(self._context, newer, attributes, controls=[SHOW_DELETED])):
            for entry in page.entries:
                is_deleted = changed[entry.guid] = entry.first("isDeleted") == b"TRUE"
                if entry.number("uSNCreated") > self._usn:
                    primary.add(entry.text("primaryGroupID"))
                elif not is_deleted and _is_container(entry) and normalized(entry.dn) != normalized(self._context):
                    raise _container_changed(entry)
        changed.pop("", None)  # objects that the reader may not see
        return changed, self._primary_groups(primary - {""})

    def _check_not_restored(self, newest: Mapping[str, int], lowest: int) -> None:
        """Raises ``CursorRefusedError`` if the database was restored and USNs have grown again since then.

        Otherwise each remembered object has its USN or a later one, and no other object has a USN of that range.
        """
        guids = "".join(f"(objectGUID={filter_bytes(UUID(guid).bytes_le)})" for guid in newest)
        filter_ = f"(|{guids}(&(uSNChanged>={lowest})(uSNChanged<={self._usn})))"
        found = dict(_usns(self._reader.session, self._context, filter_))
        for guid in newest.keys() | found.keys():
            usn = found.get(guid, 0)
            if usn != newest.get(guid) and usn <= self._usn:
                raise CursorRefusedError(f"object {guid} is not as it was: the domain controller was restored")

    def _primary_groups(self, rids: set[str]) -> list[str]:
        """The primary groups of new objects. Such groups do not change when they get a member."""
        reader = self._reader
        if not (
            rids and reader.preset.primary_groups and any(set_reader.member_attributes for set_reader in reader.sets)
        ):
            return []
        sid = reader.session.entry(self._context, ["objectSid"]).first("objectSid")
        if len(sid) < 8:
            return []
        # A security identifier of the domain is the domain's own with one more number.
        sids = [bytes([sid[0], sid[1] + 1]) + sid[2:] + int(rid).to_bytes(4, "little") for rid in sorted(rids)]
        filter_ = f"(|{''.join(f'(objectSid={filter_bytes(group_sid)})' for group_sid in sids)})"
        entries = reader.session.entries(Search(self._context, filter_, ["objectGUID"], controls=[EXTENDED_DN]))
        return [entry.guid for entry in entries if entry.guid]


def _is_container(entry: LdapEntry) -> bool:
    return any(value.lower() in _AD_CONTAINERS for value in entry.values("objectClass"))


# OpenLDAP (RFC 4533).

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


def csn_cursor(session: LdapSession, context: str, since: str) -> str:
    """The cursor of a read that begins now, after the cursor ``since``. Raises ``NoCursorError``.

    It is the server's ``contextCSN``, so that a full read can use pages, which are several times faster.
    """
    if SyncRequestControl.controlType.encode() not in session.root().values("supportedControl"):
        raise NoCursorError("the server does not report changes (overlay syncprov)")
    csns = sorted(value.decode() for value in session.entry(context, ["contextCSN"]).values("contextCSN"))
    if not csns:
        raise NoCursorError("the reader may not see contextCSN at the suffix, or the overlay syncprov is missing")
    newest = _newest_by_csn(session, context, since, csns)
    if not newest:
        raise NoCursorError("the reader may not see entryUUID and entryCSN, which show a restored server")
    return orjson.dumps({"csn": csns, "newest": newest, "of": session.settings.server}).decode()


def _newest_by_csn(session: LdapSession, context: str, since: str, csns: Sequence[str]) -> dict[str, str]:
    """The entries that changed last: UUID → CSN."""
    try:
        before, known = _parsed(since)
    except CursorRefusedError:
        before, known = [], {}
    if before == csns:
        return known
    last = max(csns)
    # Without a cursor: from the beginning of the minute, then of the day, of the last change.
    starts = [max(before)] if before else [f"{last[:size]:0<14}.000000Z#000000#000#000000" for size in (12, 8)]
    known_filter = "".join(f"(entryUUID={uuid})" for uuid in known)
    for filter_ in (*(f"(|{known_filter}(entryCSN>={start}))" for start in starts), "(entryCSN=*)"):
        pages = session.pages(Search(context, filter_, _CSN_ATTRIBUTES))
        if found := [item for page in pages for item in map(_csn, page.entries) if all(item)]:
            return dict(sorted(found, key=lambda item: item[1], reverse=True)[:_REMEMBERED])
    return {}


def _csn(entry: LdapEntry) -> tuple[str, str]:
    return entry.text("entryUUID"), entry.text("entryCSN")


def _parsed(cursor: str) -> tuple[list[str], dict[str, str]]:
    """The CSNs of a cursor, and the entries that changed last. Raises ``CursorRefusedError``."""
    try:
        fields = orjson.loads(cursor)
        csns = [str(csn) for csn in fields["csn"]]
        newest = {str(UUID(uuid)): str(csn) for uuid, csn in fields["newest"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        csns, newest = [], {}
    # A server would ignore an invalid cookie, and report everything as changed.
    if not csns or not newest or not all(_CSN.fullmatch(csn) for csn in (*csns, *newest.values())):
        raise CursorRefusedError(_CURSOR_IS_FOREIGN)
    return csns, newest


class SyncreplChanges:
    """The changes between two cursors. Raises ``CursorRefusedError`` before it yields anything.

    While the server's session log reaches back to the cursor, it reports deleted entries. Beyond it, the server reports
    all entries that still exist. A full read is faster then.
    """

    def __init__(self, reader: Reader, since: str, now: str) -> None:
        csns, newest = _parsed(since)
        if orjson.loads(since).get("of") != orjson.loads(now)["of"]:
            raise CursorRefusedError("another server answers than before")
        self._cookie = f"rid=000,csn={';'.join(csns)}"
        self._reader = reader
        self._context = reader.session.naming_context(reader.settings.base)
        self._limit = _MAX_CHANGES
        if since == now:
            self._by_set: list[list[LdapEntry | str]] = [[] for _ in reader.sets]
            return
        missing = self._missing(newest) - self._check_containers(csns)
        if missing:
            raise CursorRefusedError(f"entry {min(missing)} does not exist any more: the server was restored")
        self._by_set = [
            self._search(Search(set_.base, set_.filter, set_.attributes, set_.scope, set_.where))
            for set_ in reader.sets
        ]

    def __iter__(self) -> Iterator[DirectoryObject | Gone | Malformed]:
        for set_reader, entries in zip(self._reader.sets, self._by_set, strict=True):
            for entry in entries:
                if isinstance(entry, LdapEntry):
                    yield from self._reader.objects_of(set_reader, [entry])
                else:
                    yield Gone(ObjectId(set_reader.name, entry))

    def _missing(self, newest: Mapping[str, str]) -> set[str]:
        """The remembered entries that do not exist. Raises ``CursorRefusedError`` if one of the others is older."""
        filter_ = f"(|{''.join(f'(entryUUID={uuid})' for uuid in newest)})"
        found = dict(map(_csn, self._reader.session.entries(Search(self._context, filter_, _CSN_ATTRIBUTES))))
        for uuid, csn in found.items():
            if csn < newest.get(uuid, ""):
                raise CursorRefusedError(f"entry {uuid} has an older state than before: the server was restored")
        return newest.keys() - found.keys()

    def _check_containers(self, csns: Sequence[str]) -> set[str]:
        """Raises ``CursorRefusedError`` if an old container changed: the entries in it may have other DNs now.

        The search covers the whole naming context, because a container may have been moved out of the base. Returns the
        UUIDs of entries that were deleted, or that changed and are not containers.
        """
        then = max(csn[:14] for csn in csns)
        others = set[str]()
        for entry in self._search(Search(self._context, _CONTAINERS, ["createTimestamp"])):
            if isinstance(entry, str):
                others.add(entry)
            elif entry.text("createTimestamp")[:14] <= then:
                raise _container_changed(entry)
        return others

    def _search(self, search: Search) -> list[LdapEntry | str]:
        """The entries that changed, and the UUIDs of deleted ones."""
        session = self._reader.session
        message = session.begin(search, SyncRequestControl(cookie=self._cookie, mode="refreshOnly"))
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
