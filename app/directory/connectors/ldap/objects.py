"""Reads the objects of sets: searches, large groups, and the conversion of entries to objects."""

import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from app.directory.connector import ALL_ATTRIBUTES, DirectoryObject, ReadError, RequestedFields, UnreadableValueError
from app.directory.connectors.ldap.session import EXTENDED_DN, LdapSession, Search
from app.directory.connectors.ldap.settings import ACCOUNT_EXPIRED, LdapConnectionSettings
from app.directory.connectors.ldap.values import (
    CONVERSIONS,
    LdapEntry,
    Plain,
    as_guid,
    as_integer,
    as_sid,
    as_text,
    as_text_or_base64,
    as_text_or_plain_dn,
    filter_bytes,
    filter_text,
    guid_or_name,
    is_below,
    member_name,
    normalized,
    plain_dn,
    search_base,
    to_filetime,
)
from app.directory.source import Malformed, ObjectId, Remark
from app.foundation.batches import batches
from app.foundation.text import printable

T = TypeVar("T")

DN = "dn"
"""The name of an object's DN in rules. It is not an attribute."""

_FIRST_RANGE = ";range=0-1499"
"""The option that requests the first values of a large attribute."""

_RANGE = re.compile(r"(.+);range=(\d+)-(\d+|\*)", re.IGNORECASE)

FILTER_SIZE = 100
"""Ids, or groups, in one filter."""

_OWN_PARTITIONS = ("cn=configuration", "cn=schema", "dc=domaindnszones", "dc=forestdnszones")
"""Active Directory's own partitions, which contain no people."""

_MAX_RANGES = 100_000
"""Requests for the values of one attribute."""

_NO_EXPIRY = (
    "is missing, which every account has; give the reader the right to see it, or set account_expiry: false if an"
    " account that expires keeps its access"
)


class Range(NamedTuple):
    """A large attribute whose further values must be requested."""

    attribute: str
    following: int
    """The index of the first further value."""


class EntryObject(NamedTuple):
    """The object of an entry, and the ranges of its members that must be requested."""

    object: DirectoryObject
    entry: LdapEntry
    ranges: Sequence[Range]


class _Target(NamedTuple):
    """A name in rules for an attribute, and the conversion of its values."""

    name: str
    convert: Callable[[bytes], Plain]
    is_list: bool


class _Use(NamedTuple):
    """The use of an attribute, whose name is in lower case."""

    name: str
    targets: Sequence[_Target]
    is_own: bool
    """Whether it is the id, the name or the expiry of the object."""
    is_member: bool


def _plain(attribute: str, convert: Callable[[bytes], T], value: bytes) -> T:
    """The converted value. Raises ``UnreadableValueError`` with the attribute's name."""
    try:
        return convert(value)
    except UnreadableValueError as error:
        raise UnreadableValueError(f"{attribute} {error}") from None


class SetReader:
    """The attributes to request for a set, and the objects made of its entries.

    ``wanted``: the attributes that rules name. ``with_members``: whether rules use members. ``now``: as of ``Reader``.
    """

    def __init__(
        self, name: str, settings: LdapConnectionSettings, wanted: Collection[str], *, with_members: bool, now: datetime
    ) -> None:
        own, preset = settings.sets_in_force()[name], settings.preset_in_force()
        self.name = name
        self.where = f"sets.{name}"
        self.filter = str(own.filter)
        self.scope = own.scope
        self.base = own.base if own.base is not None else f"{own.below},{settings.base}" if own.below else settings.base
        self.id = str(own.id)
        self.member_attributes = tuple(own.members) if with_members else ()
        self._extended = preset.extended_dn
        end = preset.ends.get(name, "")
        self._reports_expiry = bool(end) and ACCOUNT_EXPIRED in wanted
        self._expiry = end if self._reports_expiry or end.lower() in map(str.lower, wanted) else ""
        self._now = to_filetime(now)
        self._convert = {attribute.lower(): CONVERSIONS[how] for attribute, how in preset.convert.items()}
        self._lists = frozenset(map(str.lower, preset.lists))
        self._everything = ALL_ATTRIBUTES in wanted
        self._spellings: dict[str, list[str]] = {}
        """Attribute in lower case → its names in rules."""
        for attribute in sorted(wanted):
            self._spellings.setdefault(attribute.lower(), []).append(attribute)
        self._members = frozenset(map(str.lower, self.member_attributes))
        self._id = self.id.lower()
        self._named_by = own.named_by
        self._naming = "" if own.named_by.lower() == DN else own.named_by.lower()
        """The attribute by which groups name the object. Empty: its DN."""
        self._use_of = cache(self._use)
        self._several: dict[str, tuple[int, str]] = {}
        """Attribute → number of objects with several values, and the place of the first."""
        primary_groups = preset.primary_groups and bool(self.member_attributes)
        self.attributes = self._requested(ranges=preset.ranges, primary_groups=primary_groups)

    def _requested(self, *, ranges: bool, primary_groups: bool) -> list[str]:
        requested = {self._id: self.id}
        if self._naming:
            requested[self._naming] = self._named_by
        if self._everything:
            requested[ALL_ATTRIBUTES] = ALL_ATTRIBUTES
        for lower, spellings in self._spellings.items():
            if lower not in (DN, ALL_ATTRIBUTES, ACCOUNT_EXPIRED):
                requested.setdefault(lower, spellings[0])
        if self._expiry:
            requested.setdefault(self._expiry.lower(), self._expiry)
        for attribute in self.member_attributes:
            requested[attribute.lower()] = attribute + (_FIRST_RANGE if ranges else "")
        if primary_groups:
            requested["objectsid"] = "objectSid"
        return list(requested.values())

    # Entries.

    def read(self, entry: LdapEntry) -> EntryObject | Malformed:
        """The object of an entry. It is malformed if a value is unreadable, because that may be a restriction."""
        dn = plain_dn(entry.dn) if self._extended else entry.dn
        value: dict[str, object] = {}
        own: dict[str, Sequence[bytes]] = {}
        members: list[str] = []
        ranges: list[Range] = []
        try:
            for attribute, values in entry.attributes.items():
                use = self._use_of(attribute)
                for target in use.targets:
                    self._convert_into(value, target, values, dn)
                if use.is_own:
                    own[use.name] = values
                elif use.is_member:
                    self._add_members(use.name, values, members, ranges)
            id_ = next((self._converted(self.id, raw) for raw in own.get(self._id, ())), None)
            names = tuple(str(self._converted(self._named_by, raw)) for raw in own.get(self._naming, ()))
            if self._is_expired(own.get(self._expiry.lower(), ())):
                value[ACCOUNT_EXPIRED] = True
        except UnreadableValueError as error:
            return Malformed(dn, str(error), self._object_id(entry))
        if reason := self._missing(id_, own):
            return Malformed(dn, reason, self._object_id(entry))
        value.update(dict.fromkeys(self._spellings.get(DN, ()), dn))
        names = names if self._naming else (normalized(dn),)
        object_ = DirectoryObject(ObjectId(self.name, str(id_)), value, dn, names, tuple(members))
        return EntryObject(object_, entry, ranges)

    def _missing(self, id_: Plain, own: Collection[str]) -> str:
        """The missing attribute that every object must have. Empty if there is none."""
        if id_ is None or id_ == "":
            return f"has no {self.id}, which is its id; name another attribute in {self.where}.id"
        return f"{self._expiry} {_NO_EXPIRY}" if self._expiry and self._expiry.lower() not in own else ""

    def _is_expired(self, ends: Sequence[bytes]) -> bool:
        return self._reports_expiry and bool(ends) and 0 < _plain(self._expiry, as_integer, ends[0]) <= self._now

    def _object_id(self, entry: LdapEntry) -> ObjectId | None:
        with suppress(UnreadableValueError):
            id_ = next((self._converted(self.id, raw) for raw in entry.values(self._id)), None)
            return ObjectId(self.name, str(id_)) if id_ not in (None, "") else None
        return None

    def _convert_into(self, value: dict[str, object], target: _Target, values: Sequence[bytes], dn: str) -> None:
        if target.is_list:
            plains = (_plain(target.name, target.convert, raw) for raw in values)
            value[target.name] = [plain for plain in plains if plain is not None]
        elif values:
            if len(values) > 1:
                count, place = self._several.get(target.name, (0, dn))
                self._several[target.name] = (count + 1, place)
            plain = _plain(target.name, target.convert, values[0])
            if plain is not None:
                value[target.name] = plain

    def _converted(self, attribute: str, value: bytes) -> Plain:
        return _plain(attribute, self._convert.get(attribute.lower(), as_text), value)

    def remarks(self) -> Iterator[Remark]:
        """The attributes that unexpectedly had several values."""
        for name, (count, place) in sorted(self._several.items()):
            others = f", also in {count - 1:,} other objects" if count > 1 else ""
            yield Remark(
                place,
                f"{self.where}: {name} has several values{others}; the first is used (lists: [{name}] makes it a list)",
            )

    def _use(self, attribute: str) -> _Use:
        lower = attribute.lower()
        is_own = lower in (self._id, self._naming, self._expiry.lower())
        return _Use(lower, self._targets(attribute), is_own, lower.partition(";")[0] in self._members)

    def _targets(self, attribute: str) -> Sequence[_Target]:
        """The targets of an attribute. Options make another attribute of it (``cn;lang-de``)."""
        lower = attribute.lower()
        spellings = self._spellings.get(lower, [])
        if self._everything and lower not in self._members and not _RANGE.fullmatch(attribute):
            spellings = spellings or [attribute]
        convert = self._convert.get(lower, as_text_or_plain_dn if self._extended else as_text)
        if self._everything and lower not in self._spellings and lower not in self._convert:
            convert = as_text_or_base64
        return [_Target(name, convert, lower in self._lists) for name in spellings]

    # Members.

    def more_members(self, entry: LdapEntry, members: list[str]) -> list[Range]:
        """Adds the members of a further response, and returns the ranges after it."""
        ranges: list[Range] = []
        for attribute, values in entry.attributes.items():
            self._add_members(attribute.lower(), values, members, ranges)
        return ranges

    def _add_members(self, lower: str, values: Sequence[bytes], members: list[str], ranges: list[Range]) -> None:
        found = _RANGE.fullmatch(lower) if ";" in lower else None
        attribute = found[1] if found else lower
        if attribute not in self._members:
            return
        name_of = guid_or_name if self._extended else member_name
        members += (_plain(attribute, name_of, value) for value in values)
        if found and found[3] != "*":
            ranges.append(Range(attribute, int(found[3]) + 1))

    # Filters.

    def value_filter(self, attribute: str, texts: Sequence[str]) -> str:
        """The filter for objects with one of these values of an attribute."""
        return f"(&{self.filter}(|{''.join(f'({attribute}={self._filter_value(attribute, text)})' for text in texts)}))"

    def _filter_value(self, attribute: str, text: str) -> str:
        if self._convert.get(attribute.lower()) is as_guid:
            try:
                return filter_bytes(uuid.UUID(text).bytes_le)
            except ValueError:
                return filter_bytes(text.encode(errors="replace"))
        return filter_text(text)

    def expired_since(self, then: int) -> str:
        """The filter for accounts that have expired since an earlier read (a FILETIME), or are not expired any more
        because the clock was set back. Empty if the set does not report expiry, or no time has passed."""
        first, last = sorted((then, self._now))
        return (
            f"(&({self._expiry}>={first + 1})({self._expiry}<={last}))" if self._reports_expiry and first < last else ""
        )


class Reader:
    """Reads the objects of sets over one connection. ``now``: the time of the read, for accounts that expire."""

    def __init__(self, session: LdapSession, wanted: RequestedFields, now: datetime) -> None:
        settings = session.settings
        known = settings.sets_in_force()
        for name in wanted.attributes:
            if name not in known:
                raise ReadError(
                    f"sets.{printable(name, limit=80)}: does not exist, but rules read it; there are {', '.join(known)}"
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
        self.incomplete_reason = ""
        """Names the part of the directory that another server has. Empty if there is none."""
        self._controls = [EXTENDED_DN] if self.preset.extended_dn else []

    def objects(self, set_reader: SetReader, filter_: str | None = None) -> Iterator[DirectoryObject | Malformed]:
        """The objects of a set, or those that match a filter."""
        search = Search(
            set_reader.base,
            filter_ or set_reader.filter,
            set_reader.attributes,
            set_reader.scope,
            set_reader.where,
            self._controls,
        )
        has_members = bool(set_reader.member_attributes)
        # Groups are returned with all members, unless the server returns large attributes in ranges.
        one_by_one = has_members and not self.preset.ranges
        for page in self.session.pages(search, one_by_one=one_by_one, prefetch=one_by_one or not has_members):
            self._check_referrals(page.referrals)
            yield from self.objects_of(set_reader, page.entries)

    def by_ids(self, set_reader: SetReader, ids: Sequence[str]) -> Iterator[DirectoryObject | Malformed]:
        for batch in batches(ids, FILTER_SIZE):
            yield from self.objects(set_reader, set_reader.value_filter(set_reader.id, batch))

    def objects_of(self, set_reader: SetReader, entries: Sequence[LdapEntry]) -> Iterator[DirectoryObject | Malformed]:
        """The objects of entries, with all members."""
        if not set_reader.member_attributes:
            for entry in entries:
                found = set_reader.read(entry)
                yield found.object if isinstance(found, EntryObject) else found
            return
        for batch in batches(entries, FILTER_SIZE):
            results = [set_reader.read(entry) for entry in batch]
            primary = self._primary_members([found for found in results if isinstance(found, EntryObject)])
            for found in results:
                yield found if isinstance(found, Malformed) else self._with_all_members(set_reader, found, primary)

    def _with_all_members(
        self, set_reader: SetReader, found: EntryObject, primary: Mapping[ObjectId, Sequence[str]]
    ) -> DirectoryObject | Malformed:
        object_ = found.object
        primary_members = primary.get(object_.id, ())
        if not found.ranges and not primary_members:
            # A group may have hundreds of thousands of members, so they are not copied.
            return object_
        members = list(object_.members)
        try:
            for first in found.ranges:
                self._read_ranges(set_reader, found, first, members)
        except UnreadableValueError as error:
            return Malformed(object_.place, str(error), object_.id)
        members += primary_members
        return object_._replace(members=tuple(dict.fromkeys(members)))

    def _read_ranges(self, set_reader: SetReader, found: EntryObject, first: Range, members: list[str]) -> None:
        """Adds the further members of a large group."""
        place = printable(found.object.place, limit=100)
        following: Range | None = first
        for _ in range(_MAX_RANGES):
            if following is None:
                return
            attribute = f"{following.attribute};range={following.following}-*"
            base = search_base(found.entry.dn)
            search = Search(base, "(objectClass=*)", [attribute], "base", set_reader.where, self._controls)
            entries = self.session.entries(search)
            prefix = f"{first.attribute};"
            if not any(name.lower().startswith(prefix) for entry in entries for name in entry.attributes):
                raise ReadError(f"{set_reader.where}: {place} changed while its members were read; read it again")
            previous = following.following
            following = next(iter(set_reader.more_members(entries[0], members)), None)
            if following is not None and following.following <= previous:
                break
        raise ReadError(f"{set_reader.where}: the server does not end the list of members of {place}")

    def _primary_members(self, groups: Sequence[EntryObject]) -> Mapping[ObjectId, Sequence[str]]:
        """The members by primary group, whom groups do not list."""
        if not self.preset.primary_groups:
            return {}
        by_rid = {
            as_sid(sid).rpartition("-")[2]: group.object.id
            for group in groups
            for sid in group.entry.values("objectSid")
        }
        if not by_rid:
            return {}
        members: dict[ObjectId, list[str]] = {}
        filter_ = f"(|{''.join(f'(primaryGroupID={rid})' for rid in by_rid)})"
        base = self.session.naming_context(self.settings.base)
        for page in self.session.pages(Search(base, filter_, ["objectGUID", "primaryGroupID"])):
            for entry in page.entries:
                group = by_rid.get(str(entry.number("primaryGroupID")))
                if group is not None:
                    members.setdefault(group, []).extend(map(as_guid, entry.values("objectGUID")))
        return members

    def _check_referrals(self, referrals: Sequence[str]) -> None:
        """Sets ``incomplete_reason`` if a referral leads to a part of the directory that is not left out on purpose."""
        left_out = [normalized(dn) for dn in self.settings.elsewhere]
        for url in referrals:
            dn = normalized(unquote(urlsplit(url).path.removeprefix("/")))
            if self.preset.changes == "usn" and dn.startswith(_OWN_PARTITIONS):
                continue
            if not any(is_below(dn, base) for base in left_out):
                self.incomplete_reason = (
                    f"a part of the directory is on another server, which is not read: {printable(url, limit=150)};"
                    " read it as a source of its own, and name it in elsewhere"
                )
