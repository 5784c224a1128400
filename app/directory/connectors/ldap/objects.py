"""Objects made of entries: which attributes a set asks for, and what becomes of their values."""

import re
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from app.directory.connector import ALL_ATTRIBUTES, DirectoryObject
from app.directory.connectors.ldap.names import all_normalized, normalized
from app.directory.connectors.ldap.presets import ACCOUNT_EXPIRED, Preset, SetSettings
from app.directory.connectors.ldap.session import LdapEntry
from app.directory.connectors.ldap.settings import LdapConnectionSettings
from app.directory.connectors.ldap.values import (
    CONVERSIONS,
    Converted,
    UnreadableValueError,
    as_integer,
    as_text,
    as_texts,
    to_filetime,
)
from app.directory.source import Malformed, ObjectId, Remark

DN = "dn"
"""What rules call the DN of an object: it is no attribute."""

FIRST_RANGE = ";range=0-1499"

_RANGE = re.compile(r"(.+);range=(\d+)-(\d+|\*)", re.IGNORECASE)
_EXTENDED = re.compile(r"(?:<[A-Za-z]+=[^>]*>;)+")
_GUID = re.compile(rb"<GUID=([0-9A-Fa-f-]{32,36})>")
_OPTIONAL_UID = re.compile(r"#'[01]*'B$")
"""What a uniqueMember may have behind its DN."""


_HIDDEN = (
    "is missing, which every account has; give the reader the right to see it, or set account_expiry: false if an"
    " account that expires keeps its access"
)

_TOGETHER = 1_000
"""Members of a group whose names are put into one spelling together."""


class Range(NamedTuple):
    """Values of a large attribute of which there are more."""

    attribute: str
    following: int
    """The index of the first value that was not told."""


class Read(NamedTuple):
    """An object, and which of its members are still to be asked for."""

    thing: DirectoryObject
    entry: LdapEntry
    ranges: Sequence[Range]


_Take = tuple[str, Callable[[bytes], Converted], bool]
"""The name in rules, the conversion, and whether all values are wanted."""


class _Plan(NamedTuple):
    """What becomes of an attribute, as the server spells it."""

    text: str
    """The name in rules of one that is nothing but a text; empty: it is more."""
    small: str
    takes: Sequence[_Take]
    is_own: bool
    """Whether it identifies or names the object, or is its end."""
    is_member: bool


class SetReader:
    """What is asked for of a set, and how objects are made of what comes.

    ``wanted`` are the attributes that rules name, ``with_members`` says whether members are. ``now`` is the time of the
    read.
    """

    def __init__(
        self,
        name: str,
        settings: LdapConnectionSettings,
        wanted: Collection[str],
        *,
        with_members: bool,
        now: datetime,
    ) -> None:
        one: SetSettings = settings.sets_in_force()[name]
        known: Preset = settings.preset_in_force()
        assert one.filter is not None  # noqa: S101 - for the type checker: the settings see to it
        assert one.id is not None  # noqa: S101 - as above
        self.name = name
        self.where = f"sets.{name}"
        self.filter = one.filter
        self.scope = one.scope
        self.base = one.base if one.base is not None else f"{one.below},{settings.base}" if one.below else settings.base
        self.id = one.id
        self.member_attributes = tuple(one.members) if with_members else ()
        self._extended = known.extended_dn
        end = known.ends.get(name, "")
        self._with_expiry = bool(end) and ACCOUNT_EXPIRED in wanted
        self._end = end if self._with_expiry or any(one.lower() == end.lower() for one in wanted) else ""
        self._now = to_filetime(now)
        self._convert = {attribute.lower(): CONVERSIONS[how] for attribute, how in known.convert.items()}
        self._lists = frozenset(attribute.lower() for attribute in known.lists)
        self._everything = ALL_ATTRIBUTES in wanted
        self._spellings: dict[str, list[str]] = {}
        for attribute in sorted(wanted):
            self._spellings.setdefault(attribute.lower(), []).append(attribute)
        self._members = frozenset(attribute.lower() for attribute in self.member_attributes)
        self._named_by = one.named_by
        self._id = one.id.lower()
        self._names = None if one.named_by.lower() == DN else one.named_by.lower()
        self._plans: dict[str, _Plan] = {}
        self._several: dict[str, tuple[int, str]] = {}
        self.attributes = self._asked_for(
            ranges=known.ranges, primary=known.primary_groups and bool(self.member_attributes)
        )

    def _asked_for(self, *, ranges: bool, primary: bool) -> list[str]:
        needed = {self._id: self.id}
        if self._names is not None:
            needed[self._names] = self._named_by
        if self._everything:
            needed[ALL_ATTRIBUTES] = ALL_ATTRIBUTES
        for small, spellings in self._spellings.items():
            if small not in (DN, ALL_ATTRIBUTES, ACCOUNT_EXPIRED):
                needed.setdefault(small, spellings[0])
        if self._end:
            needed.setdefault(self._end.lower(), self._end)
        for attribute in self.member_attributes:
            needed[attribute.lower()] = attribute + (FIRST_RANGE if ranges else "")
        if primary:
            needed["objectsid"] = "objectSid"
        return list(needed.values())

    def read(self, entry: LdapEntry) -> Read | Malformed:
        """The object that an entry is.

        With an attribute that cannot be understood it is malformed: that one might have forbidden something.
        """
        dn = _EXTENDED.sub("", entry.dn) if self._extended else entry.dn
        value: dict[str, object] = {}
        own: dict[str, Sequence[bytes]] = {}
        members: list[str] = []
        ranges: list[Range] = []
        attribute = ""
        try:
            for attribute, values in entry.attributes.items():
                plan = self._plans.get(attribute)
                if plan is None:
                    plan = self._plans[attribute] = self._planned(attribute)
                if plan.text and len(values) == 1:
                    value[plan.text] = as_text(values[0])
                    continue
                for name, convert, all_values in plan.takes:
                    if not all_values and len(values) == 1:
                        first = convert(values[0])
                        if first is not None:
                            value[name] = first
                    else:
                        self._take(value, name, convert, values, all_values=all_values, place=dn)
                if plan.is_own:
                    own[plan.small] = values
                elif plan.is_member:
                    self._take_members(plan.small, values, members, ranges)
            attribute = self.id
            ids = own.get(self._id, ())
            id_ = self._converted(self._id, ids[0]) if ids else None
            attribute = self._named_by
            names = (
                [normalized(dn)]
                if self._names is None
                else [str(self._converted(self._names, one)) for one in own.get(self._names, ())]
            )
            attribute = self._end
            self._take_expiry(value, own.get(attribute.lower(), ()))
        except UnreadableValueError as error:
            return Malformed(dn, f"{attribute} {error}", self._object_of(entry))
        if lacking := self._lacking(entry, id_):
            return Malformed(dn, lacking, self._object_of(entry))
        for name in self._spellings.get(DN, ()):
            value[name] = dn
        thing = DirectoryObject(ObjectId(self.name, str(id_)), value, dn, tuple(names), tuple(members))
        return Read(thing, entry, ranges)

    def _take_expiry(self, into: dict[str, object], ends: Sequence[bytes]) -> None:
        if self._with_expiry and ends and 0 < as_integer(ends[0]) <= self._now:
            into[ACCOUNT_EXPIRED] = True

    def _lacking(self, entry: LdapEntry, id_: Converted) -> str:
        """Which attribute is missing that every object has, and what to do; empty: none."""
        if id_ is None or id_ == "":
            return f"has no {self.id}, by which it would be known; name another attribute in {self.where}.id"
        if self._end and not any(attribute.lower() == self._end.lower() for attribute in entry.attributes):
            return f"{self._end} {_HIDDEN}"
        return ""

    def _object_of(self, entry: LdapEntry) -> ObjectId | None:
        """The object that an entry is of which not all can be understood."""
        ids = next((values for name, values in entry.attributes.items() if name.lower() == self._id and values), None)
        with suppress(UnreadableValueError):
            id_ = None if ids is None else self._converted(self._id, ids[0])
            return ObjectId(self.name, str(id_)) if id_ not in (None, "") else None
        return None

    def _take(
        self,
        into: dict[str, object],
        name: str,
        convert: Callable[[bytes], Converted],
        values: Sequence[bytes],
        *,
        all_values: bool,
        place: str,
    ) -> None:
        if all_values:
            into[name] = [one for one in map(convert, values) if one is not None]
        elif values:
            if len(values) > 1:
                self._note_several(name, place)
            first = convert(values[0])
            if first is not None:
                into[name] = first

    def more_members(self, entry: LdapEntry, members: list[str]) -> list[Range]:
        """Adds the members that an answer tells, and says where they go on."""
        ranges: list[Range] = []
        for attribute, values in entry.attributes.items():
            self._take_members(attribute.lower(), values, members, ranges)
        return ranges

    def remarks(self) -> Iterator[Remark]:
        """What was odd about the objects that were read, each thing once."""
        for name, (count, place) in sorted(self._several.items()):
            others = f", as has it in {count - 1:,} other objects" if count > 1 else ""
            yield Remark(
                place,
                f"{self.where}: {name} has several values{others}; the first counts (lists: [{name}] makes it a list)",
            )

    def id_filter(self, ids: Sequence[str]) -> str:
        """The filter for objects with one of these ids."""
        return f"(&{self.filter}(|{''.join(f'({self.id}={self._assertion(self._id, one)})' for one in ids)}))"

    def expired_since(self, then: int) -> str:
        """The filter for accounts that have expired since an earlier read (a FILETIME), or no longer count as expired
        because the clock was set back. Empty: there are none."""
        first, last = sorted((then, self._now))
        return f"(&({self._end}>={first + 1})({self._end}<={last}))" if self._with_expiry and first < last else ""

    def value_filter(self, attribute: str, texts: Sequence[str]) -> str:
        """The filter for objects of which an attribute has one of these values."""
        return (
            f"(&{self.filter}(|{''.join(f'({attribute}={self._assertion(attribute.lower(), one)})' for one in texts)}))"
        )

    def _assertion(self, small: str, text: str) -> str:
        if self._convert.get(small) is CONVERSIONS["guid"]:
            try:
                return escaped(uuid.UUID(text).bytes_le)
            except ValueError:
                return escaped(text.encode(errors="replace"))
        return escaped_text(text)

    def _converted(self, small: str, value: bytes) -> Converted:
        return self._convert.get(small, as_text)(value)

    def _planned(self, attribute: str) -> _Plan:
        small = attribute.lower()
        is_member = small.partition(";")[0] in self._members
        is_own = small in (self._id, self._names, self._end.lower())
        takes = self._taken(attribute)
        is_text = len(takes) == 1 and takes[0][1] is as_text and not takes[0][2] and not is_own and not is_member
        return _Plan(takes[0][0] if is_text else "", small, takes, is_own, is_member)

    def _taken(self, attribute: str) -> Sequence[_Take]:
        """What becomes of the values of an attribute, as the server spells it. Variants (``cn;lang-de``) are others."""
        small = attribute.lower()
        spellings = self._spellings.get(small, [])
        if self._everything and small not in self._members and not _RANGE.fullmatch(attribute):
            spellings = spellings or [attribute]
        convert = self._convert.get(small, self._plain_text if self._extended else as_text)
        if self._everything and small not in self._spellings and small not in self._convert:
            convert = _text_or_base64
        return [(name, convert, small in self._lists) for name in spellings]

    @staticmethod
    def _plain_text(value: bytes) -> str:
        text = as_text(value)
        return _EXTENDED.sub("", text) if text.startswith("<GUID=") else text

    def _take_members(self, small: str, values: Sequence[bytes], members: list[str], ranges: list[Range]) -> None:
        found = _RANGE.fullmatch(small) if ";" in small else None
        attribute = found[1] if found else small
        if attribute not in self._members:
            return
        if self._extended:
            members += map(self._member, values)
        else:
            for start in range(0, len(values), _TOGETHER):
                members += _dns_or_texts(as_texts(values[start : start + _TOGETHER]))
        if found and found[3] != "*":
            ranges.append(Range(attribute, int(found[3]) + 1))

    def _member(self, value: bytes) -> str:
        if self._extended and (found := _GUID.match(value)):
            return str(uuid.UUID(found[1].decode()))
        return _dn_or_text(as_text(value))

    def _note_several(self, name: str, place: str) -> None:
        count, first = self._several.get(name, (0, place))
        self._several[name] = (count + 1, first)


def _dns_or_texts(texts: Sequence[str]) -> Sequence[str]:
    if "#" not in "".join(texts) and not [text for text in texts if "=" not in text]:
        return all_normalized(texts)
    return [_dn_or_text(text) for text in texts]


def _dn_or_text(text: str) -> str:
    if "=" not in text:
        return text
    return normalized(text if "#" not in text else _OPTIONAL_UID.sub("", text))


def _text_or_base64(value: bytes) -> str:
    try:
        return as_text(value)
    except UnreadableValueError:
        return str(CONVERSIONS["base64"](value))


def escaped(value: bytes) -> str:
    """Bytes as they stand in a filter."""
    return "".join(f"\\{byte:02x}" for byte in value)


def escaped_text(text: str) -> str:
    """A text as it stands in a filter, where no letter of it means anything."""
    return "".join(
        one if one.isascii() and (one.isalnum() or one in "-_.@ ") else escaped(one.encode(errors="replace"))
        for one in text
    )


def asks_for_silent(preset: Preset, filters: Mapping[str, str], wanted: Mapping[str, Collection[str]]) -> str:
    """Which attribute is asked for whose changes the server tells nobody of, in words; empty: none."""
    for attribute in sorted(preset.silent):
        for name, text in filters.items():
            if re.search(rf"\({re.escape(attribute)}\s*[:~<>]?[^()]*=", text, re.IGNORECASE):
                return f"sets.{name}.filter asks for {attribute}, of whose changes the server tells nobody"
        for name, attributes in wanted.items():
            # Active Directory counts them among all attributes, OpenLDAP does not.
            asked = "*" if preset.changes == "usn" else attribute
            if any(one == asked or one.lower() == attribute.lower() for one in attributes):
                return f"rules of {name} ask for {attribute}, of whose changes the server tells nobody"
    return ""
