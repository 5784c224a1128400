"""Which kinds of item does the backend hold, and which operation brings which change about, in which order?

``RULES`` is the whole answer. A thing that planning found to differ has *aspects*; each aspect that has a rule becomes
one plan item, one operation. Phases are applied in ascending order; calls of one phase may run side by side, except
those of ``SEQUENTIAL_OPERATIONS``, where a later item of a scope may need an earlier one.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag, StrEnum


class Kind(StrEnum):
    """A kind of item; ``app.store.sync_tables`` says how each is identified."""

    ORGANIZATION = "organization"
    FOLDER = "folder"
    DOCUMENT = "document"
    GROUP = "group"
    ORGANIZATION_USER = "organizationUser"
    FOLDER_USER = "folderUser"
    DOCUMENT_USER = "documentUser"
    GROUP_MEMBER = "groupMember"


USER_KINDS = (Kind.ORGANIZATION_USER, Kind.FOLDER_USER, Kind.DOCUMENT_USER, Kind.GROUP_MEMBER)
"""What hangs on a user: ``item_id`` is a user's id."""

CONTAINERS = {
    Kind.FOLDER_USER: Kind.FOLDER,
    Kind.DOCUMENT_USER: Kind.DOCUMENT,
    Kind.GROUP_MEMBER: Kind.GROUP,
}
"""The kind of thing that ``container_id`` names."""


class Action(StrEnum):
    """What a plan item does."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


class Aspect(IntFlag):
    """In what a thing differs between the ledger and what it should be."""

    NEW = 1
    """It is not in the ledger, or the outcome of its last call is unknown."""
    CONTENT = 2
    """Its fields, its role, or (folders) the folder above it."""
    PLACE = 4
    """The folder that a document lies in."""
    ACCESS = 8
    """Its access type."""
    DISABLED = 16
    """Whether an organization is disabled."""
    GONE = 32
    """It is in the ledger and should not be there."""
    RESTORED = 64
    """It is right, but deleting its user from the organization takes it away, so that it is added again afterwards."""


class Phase(IntEnum):
    """The order of things. Adds and updates from containers to contents, then deletes the same way back."""

    ADD_ORGANIZATIONS = 10
    UPDATE_ORGANIZATIONS = 11
    DISABLE_ORGANIZATIONS = 12
    ADD_FOLDERS = 20
    UPDATE_FOLDERS = 21
    FOLDER_ACCESS = 22
    ADD_DOCUMENTS = 30
    UPDATE_DOCUMENTS = 31
    MOVE_DOCUMENTS = 32
    DOCUMENT_ACCESS = 33
    ADD_GROUPS = 40
    ORGANIZATION_USERS = 50
    FOLDER_AND_DOCUMENT_USERS = 60
    GROUP_MEMBERS = 70
    DELETE_GROUP_MEMBERS = 110
    DELETE_FOLDER_AND_DOCUMENT_USERS = 120
    DELETE_ORGANIZATION_USERS = 130
    EMPTY_GROUPS = 140
    DELETE_DOCUMENTS = 150
    DELETE_FOLDERS = 160
    DELETE_ORGANIZATIONS = 170
    RESTORE_FOLDER_AND_DOCUMENT_USERS = 180
    RESTORE_GROUP_MEMBERS = 190


class Scope(StrEnum):
    """What a call carries beside its items, as the JSON list in ``plan_item.scope``."""

    NONE = "none"
    """``[]``"""
    DISABLED = "disabled"
    """``[true]`` or ``[false]``"""
    ORGANIZATION = "organization"
    """``["acme"]``"""
    CONTAINER = "container"
    """``["acme","folder","specs"]``: the organization, the kind of container and its id"""
    PARENT = "parent"
    """``["acme","specs"]``: the organization and the folder above, empty at the top"""
    ACCESS = "access"
    """``["acme","restricted"]``: the organization and the access type, empty for "inherit" """
    ITEM = "item"
    """``["acme","specs"]``: the organization and the item itself; the operation takes one at a time"""


SEQUENTIAL_OPERATIONS = frozenset({"add_folder", "update_folder"})
"""Their calls of one scope are sent one after the other: parents come before what is in them."""

DELETE_ALL_MEMBERS = (Kind.GROUP, "delete_users_from_groups")
"""An item of this kind and operation is sent with ``deleteAll``; of the kind groupMember it names the users."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One aspect of one kind, and the operation that settles it."""

    kind: Kind
    aspect: Aspect
    action: Action
    phase: Phase
    operation: str
    scope: Scope
    reason: str
    """One short sentence; ``{item}``, ``{container}``, ``{parent}``, ``{organization}`` stand for ids, ``{holder}`` for
    the user or the group that was granted access."""
    sends_payload: bool = False
    """Whether the operation carries the record's fields."""


_O, _F, _D, _G = Kind.ORGANIZATION, Kind.FOLDER, Kind.DOCUMENT, Kind.GROUP
_OU, _FU, _DU, _GM = Kind.ORGANIZATION_USER, Kind.FOLDER_USER, Kind.DOCUMENT_USER, Kind.GROUP_MEMBER
_ADD, _UPDATE, _DELETE = Action.ADD, Action.UPDATE, Action.DELETE

# fmt: off
RULES: tuple[Rule, ...] = (
    Rule(_O, Aspect.NEW, _ADD, Phase.ADD_ORGANIZATIONS, "add_organizations", Scope.NONE,
         "organization {item}", sends_payload=True),
    Rule(_O, Aspect.CONTENT, _UPDATE, Phase.UPDATE_ORGANIZATIONS, "update_organizations", Scope.NONE,
         "fields of organization {item}", sends_payload=True),
    Rule(_O, Aspect.DISABLED, _UPDATE, Phase.DISABLE_ORGANIZATIONS, "disable_organizations", Scope.DISABLED,
         "whether organization {item} is disabled"),
    Rule(_O, Aspect.GONE, _DELETE, Phase.DELETE_ORGANIZATIONS, "delete_organizations", Scope.NONE,
         "organization {item} is no longer in the directory"),

    Rule(_F, Aspect.NEW, _ADD, Phase.ADD_FOLDERS, "add_folder", Scope.ORGANIZATION,
         "folder {item}", sends_payload=True),
    Rule(_F, Aspect.CONTENT, _UPDATE, Phase.UPDATE_FOLDERS, "update_folder", Scope.ORGANIZATION,
         "fields or place of folder {item}", sends_payload=True),
    Rule(_F, Aspect.ACCESS, _UPDATE, Phase.FOLDER_ACCESS, "update_folder_access", Scope.ACCESS,
         "access type of folder {item}"),
    Rule(_F, Aspect.GONE, _DELETE, Phase.DELETE_FOLDERS, "delete_folder", Scope.ITEM,
         "folder {item} is no longer in the directory"),

    Rule(_D, Aspect.NEW, _ADD, Phase.ADD_DOCUMENTS, "add_documents", Scope.PARENT,
         "document {item}", sends_payload=True),
    Rule(_D, Aspect.CONTENT, _UPDATE, Phase.UPDATE_DOCUMENTS, "update_documents", Scope.ORGANIZATION,
         "fields of document {item}", sends_payload=True),
    Rule(_D, Aspect.PLACE, _UPDATE, Phase.MOVE_DOCUMENTS, "move_documents", Scope.PARENT,
         "the folder of document {item}"),
    Rule(_D, Aspect.ACCESS, _UPDATE, Phase.DOCUMENT_ACCESS, "update_document_access", Scope.ACCESS,
         "access type of document {item}"),
    Rule(_D, Aspect.GONE, _DELETE, Phase.DELETE_DOCUMENTS, "delete_documents", Scope.ORGANIZATION,
         "document {item} is no longer in the directory"),

    Rule(_G, Aspect.NEW, _ADD, Phase.ADD_GROUPS, "add_groups", Scope.ORGANIZATION,
         "group {item}", sends_payload=True),
    Rule(_G, Aspect.GONE, _DELETE, Phase.EMPTY_GROUPS, "delete_users_from_groups", Scope.ITEM,
         "group {item} is no longer in the directory"),

    Rule(_OU, Aspect.NEW, _ADD, Phase.ORGANIZATION_USERS, "add_users", Scope.ORGANIZATION,
         "membership of user {item} in organization {organization}", sends_payload=True),
    Rule(_OU, Aspect.CONTENT, _UPDATE, Phase.ORGANIZATION_USERS, "update_users", Scope.ORGANIZATION,
         "fields or role of user {item} in organization {organization}", sends_payload=True),
    Rule(_OU, Aspect.GONE, _DELETE, Phase.DELETE_ORGANIZATION_USERS, "delete_users", Scope.ORGANIZATION,
         "user {item} has no membership in organization {organization} any more"),

    Rule(_FU, Aspect.NEW, _ADD, Phase.FOLDER_AND_DOCUMENT_USERS, "add_users", Scope.CONTAINER,
         "grant to {holder} on folder {container}", sends_payload=True),
    Rule(_FU, Aspect.CONTENT, _UPDATE, Phase.FOLDER_AND_DOCUMENT_USERS, "update_users", Scope.CONTAINER,
         "fields of user {item}, or grant to {holder} on folder {container}", sends_payload=True),
    Rule(_FU, Aspect.GONE, _DELETE, Phase.DELETE_FOLDER_AND_DOCUMENT_USERS, "delete_users", Scope.CONTAINER,
         "user {item} has no grant on folder {container} any more"),
    Rule(_FU, Aspect.RESTORED, _ADD, Phase.RESTORE_FOLDER_AND_DOCUMENT_USERS, "add_users", Scope.CONTAINER,
         "grant to {holder} on folder {container}, again: user {item} leaves organization {organization}",
         sends_payload=True),

    Rule(_DU, Aspect.NEW, _ADD, Phase.FOLDER_AND_DOCUMENT_USERS, "add_users", Scope.CONTAINER,
         "grant to {holder} on document {container}", sends_payload=True),
    Rule(_DU, Aspect.CONTENT, _UPDATE, Phase.FOLDER_AND_DOCUMENT_USERS, "update_users", Scope.CONTAINER,
         "fields of user {item}, or grant to {holder} on document {container}", sends_payload=True),
    Rule(_DU, Aspect.GONE, _DELETE, Phase.DELETE_FOLDER_AND_DOCUMENT_USERS, "delete_users", Scope.CONTAINER,
         "user {item} has no grant on document {container} any more"),
    Rule(_DU, Aspect.RESTORED, _ADD, Phase.RESTORE_FOLDER_AND_DOCUMENT_USERS, "add_users", Scope.CONTAINER,
         "grant to {holder} on document {container}, again: user {item} leaves organization {organization}",
         sends_payload=True),

    Rule(_GM, Aspect.NEW, _ADD, Phase.GROUP_MEMBERS, "add_users_to_groups", Scope.CONTAINER,
         "{holder} in group {container}"),
    Rule(_GM, Aspect.GONE, _DELETE, Phase.DELETE_GROUP_MEMBERS, "delete_users_from_groups", Scope.CONTAINER,
         "user {item} is not in group {container} any more"),
    Rule(_GM, Aspect.RESTORED, _ADD, Phase.RESTORE_GROUP_MEMBERS, "add_users_to_groups", Scope.CONTAINER,
         "{holder} in group {container}, again: user {item} leaves organization {organization}"),
)
# fmt: on

SETTLES: dict[str, tuple[str, ...]] = {
    "add_organizations": ("digest",),
    "update_organizations": ("digest",),
    "disable_organizations": ("disabled",),
    "add_folder": ("digest", "parent_id", "access_type"),
    "update_folder": ("digest", "parent_id"),
    "update_folder_access": ("access_type",),
    "add_documents": ("digest", "parent_id"),
    "update_documents": ("digest",),
    "move_documents": ("parent_id",),
    "update_document_access": ("access_type",),
    "add_groups": ("digest",),
    "add_users": ("digest", "access_role"),
    "update_users": ("digest", "access_role"),
    "add_users_to_groups": ("digest",),
}
"""Which columns of the ledger's item take the plan item's value when the operation has succeeded.

An add makes the row with these columns and the others empty (``disabled`` false). Where an add was answered "already
exists" and was turned into an update, only what that update carried is settled: for add_folder ``digest`` and
``parent_id``, for add_documents ``digest``. Deletes remove the row, and those of the items that they cover.
"""
