"""Casting: how a record looks as a JSON object, and which objects are records.

``record_from_object`` and ``object_from_record`` are each other's inverse: whatever is exported can be read back. The
fields are those of ``app/directory/README.md``, "What a directory file holds". Optional fields may be missing or null.
Times are ISO 8601 with a zone or epoch milliseconds, and are kept to the millisecond.

Fields that Usher does not know travel on with organizations, users, groups, folders and documents. The other kinds do
nothing but decide about access and have nothing to carry a field to; there, an unknown field makes the record malformed
(an ``until`` that is ignored would make a grant last for ever), unless its name says that it is a note (``x-…``). A
field whose name is near that of a known one makes the record malformed everywhere (``app.directory.spelling``).
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache

from app.access.records import (
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Membership,
    Organization,
    Record,
    User,
)
from app.clock import utc_text
from app.directory.fields import (
    Fields,
    MalformedRecordError,
    RepeatedKeys,
    name_of_type,
    take_access_role,
    take_access_type,
    take_context_value,
    take_flag,
    take_further,
    take_id,
    take_one_of,
    take_optional_id,
    take_optional_text,
    take_text,
    take_time,
)
from app.directory.spelling import bare, meant, resembling
from app.text import quoted

# Objects to records.


def record_from_object(value: object, kind: str | None = None) -> tuple[Record, tuple[str, ...]]:
    """The record that an object stands for, with remarks about odd fields.

    ``kind`` is given where the surroundings say it (a list of users); otherwise the object's field ``kind`` does.
    Raises ``MalformedRecordError``.
    """
    if not isinstance(value, dict):
        raise MalformedRecordError(f"not an object, but {name_of_type(value)}")
    if isinstance(value, RepeatedKeys):
        raise MalformedRecordError(f"{value.repeated}: this key stands twice in one object")
    fields: Fields = dict(value)
    given = fields.pop("kind", kind)
    if not isinstance(given, str) or given not in _READERS:
        raise MalformedRecordError(f"kind: {_no_kind(given, fields)}")
    if kind is not None and given != kind:
        raise MalformedRecordError(f"kind: {quoted(given)} stands in a list of {plural(kind)}")
    unknown = fields.keys() - _KNOWN[given]
    if unknown:
        _refuse_misspelt(given, [name for name in fields if name in unknown], fields)
    record = _READERS[given](fields)
    if not unknown:
        return record, ()
    return record, _remarks(given, [name for name in value if name in unknown])


def plural(kind: str) -> str:
    """What a list of records of a kind is called in a document."""
    return f"{kind}s"


def _organization(fields: Fields) -> Organization:
    return Organization(
        organization_id=take_id(fields, "organizationId"),
        organization_name=take_text(fields, "organizationName"),
        access_type=take_access_type(fields) or AccessType.ORGANIZATION_PRIVATE,
        disabled=take_flag(fields, "disabled"),
        further=take_further(fields),
    )


def _user(fields: Fields) -> User:
    return User(
        user_id=take_id(fields, "userId"),
        name=take_text(fields, "name"),
        email=take_text(fields, "email"),
        initial=take_optional_text(fields, "initial"),
        disabled=take_flag(fields, "disabled"),
        further=take_further(fields),
    )


def _membership(fields: Fields) -> Membership:
    return Membership(
        organization_id=take_id(fields, "organizationId"),
        user_id=take_id(fields, "userId"),
        access_role=take_access_role(fields),
        expires_at=take_time(fields, "expiresAt"),
    )


def _group(fields: Fields) -> Group:
    return Group(
        organization_id=take_id(fields, "organizationId"),
        organization_user_group_id=take_id(fields, "organizationUserGroupId"),
        group_name=take_text(fields, "groupName"),
        further=take_further(fields),
    )


def _group_member(fields: Fields) -> GroupMember:
    organization_id = take_id(fields, "organizationId")
    group_id = take_id(fields, "organizationUserGroupId")
    user_id, member_group_id = take_one_of(fields, "userId", "memberGroupId")
    return GroupMember(
        organization_id=organization_id,
        organization_user_group_id=group_id,
        user_id=user_id,
        member_group_id=member_group_id,
    )


def _folder(fields: Fields) -> Folder:
    return Folder(
        organization_id=take_id(fields, "organizationId"),
        folder_id=take_id(fields, "folderId"),
        folder_name=take_text(fields, "folderName"),
        parent_folder_id=take_optional_id(fields, "parentFolderId"),
        access_type=take_access_type(fields),
        further=take_further(fields),
    )


def _document(fields: Fields) -> Document:
    return Document(
        organization_id=take_id(fields, "organizationId"),
        document_id=take_id(fields, "documentId"),
        document_name=take_text(fields, "documentName"),
        folder_id=take_optional_id(fields, "folderId"),
        access_type=take_access_type(fields),
        further=take_further(fields),
    )


def _grant(fields: Fields) -> Grant:
    organization_id = take_id(fields, "organizationId")
    folder_id, document_id = take_one_of(fields, "folderId", "documentId")
    user_id, group_id = take_one_of(fields, "userId", "organizationUserGroupId")
    return Grant(
        organization_id=organization_id,
        folder_id=folder_id,
        document_id=document_id,
        user_id=user_id,
        organization_user_group_id=group_id,
        access_role=take_access_role(fields),
        expires_at=take_time(fields, "expiresAt"),
    )


def _context_grant(fields: Fields) -> ContextGrant:
    organization_id = take_id(fields, "organizationId")
    user_id, group_id = take_one_of(fields, "userId", "organizationUserGroupId")
    return ContextGrant(
        organization_id=organization_id,
        user_id=user_id,
        organization_user_group_id=group_id,
        field=take_id(fields, "field"),
        value=take_context_value(fields),
        document_id=take_optional_id(fields, "documentId"),
        expires_at=take_time(fields, "expiresAt"),
    )


_READERS: Mapping[str, Callable[[Fields], Record]] = {
    Organization.kind: _organization,
    User.kind: _user,
    Membership.kind: _membership,
    Group.kind: _group,
    GroupMember.kind: _group_member,
    Folder.kind: _folder,
    Document.kind: _document,
    Grant.kind: _grant,
    ContextGrant.kind: _context_grant,
}

KINDS = tuple(_READERS)
"""Every kind, as the field ``kind`` names it."""

_CARRIERS = (Organization, User, Group, Folder, Document)
"""Kinds whose further fields travel to the backend."""

_CARRYING_KINDS = frozenset(carrier.kind for carrier in _CARRIERS)

_KNOWN_FIELDS = {
    Organization.kind: ("organizationId", "organizationName", "accessType", "disabled"),
    User.kind: ("userId", "name", "email", "initial", "disabled"),
    Membership.kind: ("organizationId", "userId", "accessRole", "expiresAt"),
    Group.kind: ("organizationId", "organizationUserGroupId", "groupName"),
    GroupMember.kind: ("organizationId", "organizationUserGroupId", "userId", "memberGroupId"),
    Folder.kind: ("organizationId", "folderId", "folderName", "parentFolderId", "accessType"),
    Document.kind: ("organizationId", "documentId", "documentName", "folderId", "accessType"),
    Grant.kind: (
        "organizationId",
        "folderId",
        "documentId",
        "userId",
        "organizationUserGroupId",
        "accessRole",
        "expiresAt",
    ),
    ContextGrant.kind: (
        "organizationId",
        "userId",
        "organizationUserGroupId",
        "field",
        "value",
        "documentId",
        "expiresAt",
    ),
}


_KNOWN = {kind: frozenset(fields) for kind, fields in _KNOWN_FIELDS.items()}

_SETTLED_WHEN_GIVEN = {
    Organization.kind: frozenset({"organizationId", "organizationName"}),
    User.kind: frozenset({"userId", "name", "email", "initial"}),
    Group.kind: frozenset({"organizationId", "organizationUserGroupId", "groupName"}),
    Folder.kind: frozenset({"organizationId", "folderId", "folderName"}),
    Document.kind: frozenset({"organizationId", "documentId", "documentName"}),
}
"""Of the kinds with further fields, those that decide nothing and cannot have been misspelt where they are given."""

_DECIDING = ("accessType", "accessRole", "expiresAt", "disabled")
"""Fields that somebody may take to decide about access where they do not."""

_NOTE = "x-"
"""How the name of a field begins that is a note for people."""


def _no_kind(given: object, fields: Fields) -> str:
    if given is None:
        near = next((name for name in fields if isinstance(name, str) and meant(name, ("kind",))), None)
        return "is missing" if near is None else f"is missing; {quoted(near)} is not it"
    near = resembling(given, _READERS) if isinstance(given, str) else None
    hint = f"; did you mean {near}?" if near else ""
    return f"{quoted(given)} is not one of {', '.join(_READERS)}{hint}"


def _refuse_misspelt(kind: str, unknown: list[str], fields: Fields) -> None:
    """Raises ``MalformedRecordError`` for a field that may have been meant to be one of the kind's own."""
    for name in unknown:
        near = _misspelt(kind, name) if isinstance(name, str) else None
        if near is not None and not _stands_beside(kind, name, near, fields):
            raise MalformedRecordError(f"{quoted(name)}: is no field of {_a(kind)}; did you mean {near}?")
        if kind not in _CARRYING_KINDS and not str(name).startswith(_NOTE):
            raise MalformedRecordError(
                f"{quoted(name)}: is no field of {_a(kind)} and would be ignored; leave it out, or begin a note's name"
                f" with {_NOTE}"
            )


def _stands_beside(kind: str, name: str, near: str, fields: Fields) -> bool:
    """Whether it cannot have been meant to be the other: ``emails`` beside the ``email`` itself."""
    return near in _SETTLED_WHEN_GIVEN.get(kind, ()) and fields.get(near) is not None and bare(name) != bare(near)


@lru_cache(maxsize=4096)
def _misspelt(kind: str, name: str) -> str | None:
    return None if name.startswith(_NOTE) else meant(name, _KNOWN_FIELDS[kind])


def _remarks(kind: str, unknown: list[str]) -> tuple[str, ...]:
    if kind not in _CARRYING_KINDS:
        return ()
    return tuple(remark for name in unknown if (remark := _remark(kind, name)) is not None)


@lru_cache(maxsize=4096)
def _remark(kind: str, name: str) -> str | None:
    """What there is to say of a field that travels on."""
    if name in _DECIDING:
        return f"{quoted(name)} decides nothing about {_a(kind)}: it travels to the backend like any other field"
    if name.startswith(_NOTE) or meant(name, _KNOWN_FIELDS[kind]):
        return None
    likely = resembling(name, _KNOWN_FIELDS[kind], cutoff=0.85)
    return f"{quoted(name)} is no field that Usher knows; did you mean {likely}?" if likely else None


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeio" else f"a {kind}"


# Records to objects.


def object_from_record(record: Record) -> dict[str, object]:
    """The JSON object of a record, ``kind`` first; what is absent or the default is left out, further fields are in."""
    fields: dict[str, object] = {"kind": record.kind}
    fields |= {name: value for name, value in _wire_values(record) if value is not None}
    if isinstance(record, _CARRIERS):
        fields.update(record.further)
    return fields


def _wire_values(record: Record) -> list[tuple[str, object]]:
    values: list[tuple[str, object]] = []
    for name in _KNOWN_FIELDS[record.kind]:
        value = getattr(record, _attribute(name))
        if isinstance(value, datetime):
            value = utc_text(value)
        elif isinstance(value, AccessType | AccessRole):
            value = str(value)
        elif value is False:
            value = None
        values.append((name, value))
    return values


@lru_cache(maxsize=64)
def _attribute(wire_name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in wire_name)
