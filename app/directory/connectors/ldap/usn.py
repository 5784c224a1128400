"""Incremental reads of Active Directory, by ``uSNChanged``."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import orjson

from app.directory.connector import CursorRefusedError, DirectoryObject
from app.directory.connectors.ldap.cursors import FOREIGN_CURSOR, NoCursorError, container_changed, newest
from app.directory.connectors.ldap.objects import Reader
from app.directory.connectors.ldap.session import EXTENDED_DN, SHOW_DELETED, LdapSession, Search
from app.directory.connectors.ldap.values import LdapEntry, filter_bytes, normalized, to_filetime
from app.directory.source import Gone, Malformed, ObjectId

_DELETED_OBJECTS = "<WKGUID=18E2EA80684F11D2B9AA00C04F79F805,{}>"
"""The container of tombstones, by its well-known GUID."""

_FIRST_SPAN = 64
"""USNs below the highest one that are searched first for the objects that changed last."""

_USN_ATTRIBUTES = ("objectGUID", "uSNChanged")

_CONTAINERS = frozenset(
    b"organizationalunit container organization country locality domaindns builtindomain lostandfound"
    b" msexchsystemobjectscontainer".split()
)
"""Classes of entries that contain others. A move of one does not change the ``uSNChanged`` of the entries in it."""


class _UsnCursor(NamedTuple):
    """The state of a domain controller when a read began."""

    usn: int
    """The highest USN of the server."""
    database: str
    """The ``invocationId`` of the domain controller's database, because USNs are local to it."""
    newest: Mapping[str, int]
    """The objects that changed last, including deleted ones: GUID → ``uSNChanged``."""
    at: datetime

    @classmethod
    def parse(cls, text: str) -> "_UsnCursor":
        """Raises ``CursorRefusedError``."""
        try:
            fields = orjson.loads(text)
            usns = {str(UUID(guid)): int(usn) for guid, usn in fields["newest"].items()}
            cursor = cls(int(fields["usn"]), str(fields["of"]), usns, datetime.fromisoformat(fields["at"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CursorRefusedError(FOREIGN_CURSOR) from None
        if not usns or cursor.at.tzinfo is None:
            raise CursorRefusedError(FOREIGN_CURSOR)
        return cursor

    def to_json(self) -> str:
        fields = {"usn": self.usn, "of": self.database, "newest": self.newest, "at": self.at.isoformat()}
        return orjson.dumps(fields).decode()


def usn_cursor(session: LdapSession, context: str, now: datetime) -> str:
    """The cursor of a read that begins now. Raises ``NoCursorError``."""
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
    last_changed = _last_changed(session, context, int(usn))
    if not last_changed:
        raise NoCursorError("the reader may not see uSNChanged, which shows changes and a restored server")
    return _UsnCursor(int(usn), invocation_id.hex(), last_changed, now).to_json()


def _last_changed(session: LdapSession, context: str, usn: int) -> dict[str, int]:
    """``_UsnCursor.newest`` for the USN of a cursor."""
    span = _FIRST_SPAN
    while True:
        usns = _usns(session, context, f"(uSNChanged>={max(usn - span, 0) + 1})")
        found = [(guid, changed) for guid, changed in usns if changed <= usn]
        if found or span >= usn:
            return newest(found)
        span *= 8


def _usns(session: LdapSession, context: str, filter_: str) -> Iterator[tuple[str, int]]:
    """The GUIDs of the objects that match a filter, each with its ``uSNChanged``."""
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
        self._before, self._now = _UsnCursor.parse(since), _UsnCursor.parse(now)
        if self._before.database != self._now.database:
            raise CursorRefusedError("another domain controller answers than before, or its database was restored")
        if not 0 <= self._before.usn <= self._now.usn:
            raise CursorRefusedError("the domain controller is behind the cursor: it was restored")
        self._reader = reader
        self._context = reader.session.naming_context(reader.settings.base)

    def steps(self) -> Iterator[DirectoryObject | Gone | Malformed]:
        # Accounts may have expired nevertheless.
        is_unchanged = self._before._replace(at=self._now.at) == self._now
        if not is_unchanged:
            self._check_not_restored()
        newer = "" if is_unchanged else f"(uSNChanged>={self._before.usn + 1})"
        changed, groups = self._changed(newer) if newer else ({}, [])
        for set_reader in self._reader.sets:
            condition = newer + set_reader.expired_since(to_filetime(self._before.at))
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
                if entry.number("uSNCreated") > self._before.usn:
                    primary.add(entry.text("primaryGroupID"))
                elif not is_deleted and _is_container(entry) and normalized(entry.dn) != normalized(self._context):
                    raise container_changed(entry)
        changed.pop("", None)  # objects that the reader may not see
        return changed, self._primary_groups(primary - {""})

    def _check_not_restored(self) -> None:
        """Raises ``CursorRefusedError`` if the database was restored and USNs have grown again since then.

        Otherwise each remembered object has its USN or a later one, and no other object has a USN of that range.
        """
        before = self._before
        guids = "".join(f"(objectGUID={filter_bytes(UUID(guid).bytes_le)})" for guid in before.newest)
        filter_ = f"(|{guids}(&(uSNChanged>={min(before.newest.values())})(uSNChanged<={before.usn})))"
        found = dict(_usns(self._reader.session, self._context, filter_))
        for guid in before.newest.keys() | found.keys():
            usn = found.get(guid, 0)
            if usn != before.newest.get(guid) and usn <= before.usn:
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
    return any(value.lower() in _CONTAINERS for value in entry.values("objectClass"))
