"""Incremental reads of Active Directory: objects whose ``uSNChanged`` has grown since the last read, and tombstones.

USNs belong to one domain controller, so a cursor names its database (``invocationId``). A change may take an object out
of a set, because it was moved or no longer matches the filter. So the search covers the whole naming context; a changed
object that the set's own search does not find is gone from the set.

An account that expires does not change. So a cursor contains the time of its read, and the search also finds the
accounts that have expired since then.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import orjson
from ldap.controls import LDAPControl

from app.directory.connector import DirectoryObject, ObjectGone
from app.directory.connectors.ldap.names import normalized
from app.directory.connectors.ldap.objects import escaped
from app.directory.connectors.ldap.reading import REMEMBERED, Reader, guid_of
from app.directory.connectors.ldap.session import EXTENDED_DN, SHOW_DELETED, LdapEntry, LdapSession, Search
from app.directory.connectors.ldap.trouble import CursorRefusedError
from app.directory.connectors.ldap.values import to_filetime
from app.directory.source import Malformed, ObjectId
from app.foundation.text import printable

_DELETED_OBJECTS = "<WKGUID=18E2EA80684F11D2B9AA00C04F79F805,{}>"
"""The container of tombstones, under whatever name."""

_FIRST_SPAN = 64
"""USNs below the highest one among which the objects that changed last are searched first."""

_NUMBERS = ("objectGUID", "uSNChanged")

_CONTAINERS = frozenset(
    b"organizationalunit container organization country locality domaindns builtindomain lostandfound"
    b" msexchsystemobjectscontainer".split()
)
"""Classes of entries that contain others. If one is moved or renamed, the ``uSNChanged`` of what is in it does not
change. New and deleted ones do no harm: objects enter and leave them one by one."""


def cursor_now(session: LdapSession, base: str, now: datetime) -> tuple[str, str]:
    """A cursor from which changes can be asked for later, or the reason why there is none. Take it before a read.

    ``now``: the time of the read.
    """
    session.forget_root()
    root = session.root()
    usn, service = (next(iter(root.get(name, ())), b"").decode() for name in ("highestCommittedUSN", "dsServiceName"))
    if not usn.isdigit() or not service:
        return "", "the server does not tell where it stands (highestCommittedUSN): is it Active Directory?"
    own = session.entry(service, ["invocationId"])
    invocation = b"" if own is None else next(iter(own.attributes.get("invocationId", ())), b"")
    if not invocation:
        return "", "the reader may not see the server's invocationId, to which changes are bound"
    container = _DELETED_OBJECTS.format(session.naming_context(base))
    deleted = session.find(Search(container, "(objectClass=*)", ["isDeleted"], "base", controls=[SHOW_DELETED]))
    if not any(entry.attributes for entry in deleted):
        return "", (
            "the reader may not see what was deleted (the container Deleted Objects; dsacls … /G READER:LCRP gives the"
            " right)"
        )
    newest = _newest(session, base, int(usn))
    if not newest:
        return "", "the reader may not see uSNChanged, by which changes and a restored server are noticed"
    cursor = {"usn": int(usn), "of": invocation.hex(), "newest": newest, "at": now.isoformat()}
    return orjson.dumps(cursor).decode(), ""


def _newest(session: LdapSession, base: str, usn: int) -> dict[str, int]:
    """The objects that changed last, deleted ones included: GUID → ``uSNChanged``."""
    context, span = session.naming_context(base), _FIRST_SPAN
    while True:
        search = Search(context, f"(uSNChanged>={max(usn - span, 0) + 1})", _NUMBERS, controls=[SHOW_DELETED])
        found = [one for one in _numbers(session, search) if one[1] <= usn]
        if found or span >= usn:
            return dict(sorted(found, key=lambda one: one[1], reverse=True)[:REMEMBERED])
        span *= 8


def _numbers(session: LdapSession, search: Search) -> Iterator[tuple[str, int]]:
    for page in session.pages(search):
        for entry in page.entries:
            if (guid := guid_of(entry)) and (number := _number(entry.attributes.get("uSNChanged"))):
                yield guid, number


class UsnChanges:
    """What changed since a cursor. Raises ``CursorRefusedError``."""

    def __init__(self, reader: Reader, since: str, now: str) -> None:
        try:
            before, current = orjson.loads(since), orjson.loads(now)
            self._usn, of = int(before["usn"]), str(before["of"])
            newest = {str(UUID(guid)): int(number) for guid, number in before["newest"].items()}
            lowest = min(newest.values())
            self._then = to_filetime(datetime.fromisoformat(before["at"]))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise CursorRefusedError("the cursor is not one of this source's") from None
        if of != current["of"]:
            raise CursorRefusedError("another domain controller answers than before, or its database was restored")
        if not 0 <= self._usn <= current["usn"]:
            raise CursorRefusedError("the domain controller is behind where it was: it was restored")
        self._reader = reader
        self._is_same = before | {"at": ""} == current | {"at": ""}
        """Whether nothing has changed. Accounts may have expired all the same."""
        if not self._is_same:
            self._see_that_nothing_was_undone(newest, lowest)

    def __iter__(self) -> Iterator[DirectoryObject | ObjectGone | Malformed]:
        reader = self._reader
        newer = "" if self._is_same else f"(uSNChanged>={self._usn + 1})"
        changed, groups = self._changed(newer) if newer else ({}, [])
        for one in reader.sets:
            sought = newer + one.expired_since(self._then)
            if not sought:
                continue
            left = dict(changed)
            all_understood = True
            for thing in reader.objects(one, f"(&{one.filter}(|{sought}))"):
                if isinstance(thing, DirectoryObject):
                    left.pop(thing.id.id, None)
                elif thing.object is not None:
                    left.pop(thing.object.id, None)
                else:
                    all_understood = False
                yield thing
            # One that was not understood may be any of them, but for the deleted ones.
            yield from (
                ObjectGone(ObjectId(one.name, guid)) for guid, deleted in left.items() if deleted or all_understood
            )
            if one.member_attributes:
                yield from reader.by_ids(one, [guid for guid in groups if guid not in changed])

    def _changed(self, newer: str) -> tuple[Mapping[str, bool], Sequence[str]]:
        """The objects that have changed (GUID → whether it was deleted), and groups with new members that have not."""
        reader = self._reader
        changed: dict[str, bool] = {}
        primary: set[str] = set()
        base = reader.session.naming_context(reader.settings.base)
        controls: list[LDAPControl] = [SHOW_DELETED]
        attributes = ["objectGUID", "uSNCreated", "primaryGroupID", "isDeleted", "objectClass"]
        for page in reader.session.pages(Search(base, newer, attributes, controls=controls)):
            for entry in page.entries:
                is_deleted = changed[guid_of(entry)] = entry.attributes.get("isDeleted") == [b"TRUE"]
                if _number(entry.attributes.get("uSNCreated")) > self._usn:
                    primary.update(one.decode() for one in entry.attributes.get("primaryGroupID", ()))
                elif not is_deleted and _is_container(entry) and normalized(entry.dn) != normalized(base):
                    raise CursorRefusedError(
                        f"{printable(entry.dn, limit=100)} was changed, and objects in it may have been moved with it"
                    )
        changed.pop("", None)  # of whom the reader may see nothing
        return changed, self._primary_groups(base, primary - {""})

    def _see_that_nothing_was_undone(self, newest: Mapping[str, int], lowest: int) -> None:
        """Refuses if the past has changed: the database was restored, and USNs have grown again since then.

        Each remembered object has its number of then, or a later one. No other object has a number of that range.
        """
        guids = "".join(f"(objectGUID={escaped(UUID(guid).bytes_le)})" for guid in newest)
        filter_ = f"(|{guids}(&(uSNChanged>={lowest})(uSNChanged<={self._usn})))"
        session = self._reader.session
        context = session.naming_context(self._reader.settings.base)
        found = dict(_numbers(session, Search(context, filter_, _NUMBERS, controls=[SHOW_DELETED])))
        for guid in newest.keys() | found.keys():
            then, number = newest.get(guid), found.get(guid, 0)
            if number != then and number <= self._usn:
                raise CursorRefusedError(f"object {guid} is not as it was: the domain controller was restored")

    def _primary_groups(self, base: str, rids: set[str]) -> list[str]:
        """The groups that somebody new has as their primary one: they are not changed by that."""
        if (
            not rids
            or not self._reader.preset.primary_groups
            or not any(one.member_attributes for one in self._reader.sets)
        ):
            return []
        session = self._reader.session
        domain = session.entry(base, ["objectSid"])
        sid = b"" if domain is None else next(iter(domain.attributes.get("objectSid", ())), b"")
        if len(sid) < 8:
            return []
        # A security identifier of the domain is the domain's own with one number more.
        sids = [bytes([sid[0], sid[1] + 1]) + sid[2:] + int(rid).to_bytes(4, "little") for rid in sorted(rids)]
        filter_ = f"(|{''.join(f'(objectSid={escaped(one)})' for one in sids)})"
        search = Search(base, filter_, ["objectGUID"], controls=[EXTENDED_DN])
        return [guid for entry in session.entries(search) if (guid := guid_of(entry))]


def _is_container(entry: LdapEntry) -> bool:
    return any(one.lower() in _CONTAINERS for one in entry.attributes.get("objectClass", ()))


def _number(values: object) -> int:
    first = next(iter(values), b"") if isinstance(values, list) else b""
    return int(first) if first.isdigit() else 0
