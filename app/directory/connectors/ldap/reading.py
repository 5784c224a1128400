"""The search for objects: by page, large groups read to their end, and the members that groups do not name."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TypeVar
from uuid import UUID

from ldap.controls import LDAPControl

from app.directory.connector import DirectoryObject, Wanted
from app.directory.connectors.ldap.names import is_below, normalized
from app.directory.connectors.ldap.objects import DN, Range, Read, SetReader
from app.directory.connectors.ldap.session import EXTENDED_DN, LdapEntry, LdapSession, Search, named_in
from app.directory.connectors.ldap.settings import LdapConnectionSettings
from app.directory.connectors.ldap.trouble import CursorRefusedError, LdapTroubleError
from app.directory.connectors.ldap.values import UnreadableValueError, as_guid, as_integer, as_sid
from app.directory.source import Malformed, ObjectId
from app.foundation.text import printable

_T = TypeVar("_T")

AT_A_TIME = 100
"""Ids, or groups, in one filter."""

REMEMBERED = 16
"""Objects that changed last and that a cursor remembers. If one of them has an older state, the server was restored."""

_OWN_PARTITIONS = ("cn=configuration", "cn=schema", "dc=domaindnszones", "dc=forestdnszones")
"""How the names of Active Directory's own partitions begin: they hold nobody."""

_GUID_ALONE = re.compile(r"<GUID=[^>]*>")

_MOST_RANGES = 100_000
"""Steps in which the values of one attribute may come; a server that goes on and on is not asked for ever."""


class Reader:
    """Reads the objects of the sets that rules want to know of, over one connection.

    ``now``: the time of the read. An account has expired if its end is not later.
    """

    def __init__(self, session: LdapSession, wanted: Wanted, now: datetime) -> None:
        settings = session.settings
        known = settings.sets_in_force()
        for name in wanted.attributes:
            if name not in known:
                raise LdapTroubleError(
                    f"sets.{printable(name, limit=80)}: is not there, but rules read it; there are {', '.join(known)}"
                )
        self.session = session
        self.now = now
        self.settings: LdapConnectionSettings = settings
        self.preset = settings.preset_in_force()
        self.sets = [
            SetReader(name, settings, wanted.attributes[name], with_members=name in wanted.members, now=now)
            for name in known
            if name in wanted.attributes
        ]
        self.controls: Sequence[LDAPControl] = [EXTENDED_DN] if self.preset.extended_dn else []
        self.partial = ""
        """Why not all was read; empty: all was."""

    def objects(self, one: SetReader, filter_: str | None = None) -> Iterator[DirectoryObject | Malformed]:
        """The objects of a set, or those of them that a filter finds."""
        search = Search(one.base, filter_ or one.filter, one.attributes, one.scope, one.where, self.controls)
        # Of a group, all members come with it; where they come by and by, it is small at first.
        large = bool(one.member_attributes) and not self.preset.ranges
        asks_more = bool(one.member_attributes) and not large
        for page in self.session.pages(search, one_by_one=large, ahead=not asks_more):
            self._look_at(page.referrals)
            yield from self._of_page(one, page.entries)

    def refuse_if_hidden(self, disabling: Mapping[str, Collection[str]]) -> None:
        """Raises ``CursorRefusedError`` if no object of a set has an attribute by which rules disable its objects: the
        reader may not see it any more, and an object that changed would be enabled. A full read then fails.

        ``disabling``: set → attributes. Of those that every object has, a missing one is malformed.
        """
        for one in self.sets:
            known = {name.lower() for name in (DN, *self.preset.always.get(one.name, ()))}
            for attribute in sorted(disabling.get(one.name, ())):
                if attribute.lower() not in known and not self._has(one, attribute):
                    raise CursorRefusedError(f"no object of {one.name} has {attribute}, by which a rule disables")

    def _has(self, one: SetReader, attribute: str) -> bool:
        """Whether the reader can see the attribute of any object of the set."""
        search = Search(one.base, f"(&{one.filter}({attribute}=*))", [attribute], one.scope, one.where)
        found = (entry for page in self.session.pages(search, ahead=False) for entry in page.entries)
        return any(name.lower() == attribute.lower() for entry in found for name in entry.attributes)

    def by_ids(self, one: SetReader, ids: Sequence[str]) -> Iterator[DirectoryObject | Malformed]:
        """The objects of a set with these ids."""
        for some in batches(ids):
            yield from self.objects(one, one.id_filter(some))

    def of_entry(self, one: SetReader, entry: LdapEntry) -> Iterator[DirectoryObject | Malformed]:
        """The object that an entry is."""
        yield from self._of_page(one, [entry])

    def _of_page(self, one: SetReader, entries: Sequence[LdapEntry]) -> Iterator[DirectoryObject | Malformed]:
        if not one.member_attributes:
            for entry in entries:
                read = one.read(entry)
                yield read.thing if isinstance(read, Read) else read
            return
        for some in batches(entries):
            reads = [one.read(entry) for entry in some]
            primary = self._primary_members([read for read in reads if isinstance(read, Read)])
            for read in reads:
                yield read if isinstance(read, Malformed) else self._completed(one, read, primary)

    def _completed(
        self, one: SetReader, read: Read, primary: Mapping[ObjectId, Sequence[str]]
    ) -> DirectoryObject | Malformed:
        others = primary.get(read.thing.id, ())
        if not read.ranges and not others:
            # A group may have hundreds of thousands of members: no copy more than needed.
            return read.thing
        members = list(read.thing.members)
        try:
            for more in read.ranges:
                self._follow(one, read, more, members)
        except UnreadableValueError as error:
            return Malformed(read.thing.place, f"a member {error}", read.thing.id)
        members += others
        return read.thing._replace(members=tuple(dict.fromkeys(members)))

    def _follow(self, one: SetReader, read: Read, more: Range, members: list[str]) -> None:
        """Asks for the rest of a large group's members until the server says that there are no more."""
        following: Range | None = more
        for _ in range(_MOST_RANGES):
            if following is None:
                return
            asked = f"{following.attribute};range={following.following}-*"
            search = Search(dn_to_ask(read.entry.dn), "(objectClass=*)", [asked], "base", one.where, self.controls)
            found = self.session.entries(search)
            told = [
                name for entry in found for name in entry.attributes if name.lower().startswith(f"{more.attribute};")
            ]
            if not told:
                raise LdapTroubleError(
                    f"{one.where}: {printable(read.thing.place, limit=100)} changed while its members were"
                    " read; the next read sees it anew"
                )
            before = following.following
            following = next(iter(one.more_members(found[0], members)), None)
            if following is not None and following.following <= before:
                break
        raise LdapTroubleError(
            f"{one.where}: the server comes to no end with the members of {printable(read.thing.place, limit=100)}"
        )

    def _primary_members(self, reads: Sequence[Read]) -> Mapping[ObjectId, Sequence[str]]:
        """Who has one of these groups as their primary one: they are not among its members."""
        if not self.preset.primary_groups:
            return {}
        by_rid: dict[str, ObjectId] = {}
        for read in reads:
            for sid in _values(read.entry, "objectSid"):
                by_rid[as_sid(sid).rpartition("-")[2]] = read.thing.id
        if not by_rid:
            return {}
        members: dict[ObjectId, list[str]] = {}
        filter_ = f"(|{''.join(f'(primaryGroupID={rid})' for rid in by_rid)})"
        base = self.session.naming_context(self.settings.base)
        search = Search(base, filter_, ["objectGUID", "primaryGroupID"], "subtree", "base")
        for page in self.session.pages(search):
            for entry in page.entries:
                for rid in _values(entry, "primaryGroupID"):
                    group = by_rid.get(str(as_integer(rid)))
                    if group is not None:
                        members.setdefault(group, []).extend(as_guid(one) for one in _values(entry, "objectGUID"))
        return members

    def _look_at(self, referrals: Sequence[str]) -> None:
        """What other servers hold is missing, unless it is one of Active Directory's own partitions."""
        left_out = [normalized(one) for one in self.settings.elsewhere]
        for url in referrals:
            named = named_in(url)
            if self.preset.changes == "usn" and named.startswith(_OWN_PARTITIONS):
                continue
            if not any(is_below(named, one) for one in left_out):
                self.partial = (
                    f"a part of the directory is held by another server, which is not asked:"
                    f" {printable(url, limit=150)}; read it as a source of its own, and name it in elsewhere"
                )


def batches(things: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Some at a time."""
    iterator = iter(things)
    while some := list(islice(iterator, AT_A_TIME)):
        yield some


def _values(entry: LdapEntry, attribute: str) -> Sequence[bytes]:
    """The values of an attribute, however the server spells it."""
    small = attribute.lower()
    return next((values for name, values in entry.attributes.items() if name.lower() == small), ())


def dn_to_ask(dn: str) -> str:
    """The base of a search for an entry: of an extended DN its GUID alone, which no rename changes."""
    found = _GUID_ALONE.match(dn)
    return found[0] if found else dn


def guid_of(entry: LdapEntry) -> str:
    """The objectGUID of an entry; empty: it tells none."""
    found = _values(entry, "objectGUID")
    return str(UUID(bytes_le=found[0])) if found and len(found[0]) == 16 else ""
