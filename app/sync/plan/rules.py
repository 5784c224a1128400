"""The rules of planning: which operation makes which change, and in which order.

The rules: ``app/sync/plan/README.md``, "Phases".

An item that differs has *aspects*. Each aspect with a rule becomes one plan item, which is one operation. Phases are
applied in ascending order. The calls of a phase run concurrently, except those of an ordered operation in one scope.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag, StrEnum

from app.sync.ledger.items import Kind


class Action(StrEnum):
    """What a plan item does."""

    ADD = "add"
    UPDATE = "update"
    DELETE = "delete"


class Aspect(IntFlag):
    """How an item differs between the ledger and the desired state."""

    NEW = 1
    """It is not in the ledger, or unconfirmed."""
    CONTENT = 2
    """Its fields or role; of a folder also its parent."""
    PARENT = 4
    """The folder of a document."""
    ACCESS = 8
    """Its access type."""
    DISABLED = 16
    """Whether an organization is disabled."""
    GONE = 32
    """It is in the ledger and not desired."""
    RESTORED = 64
    """It is up to date, but the delete of its user from the organization removes it: it is added again afterwards."""


class Phase(IntEnum):
    """The order of operations: adds and updates from containers to contents, then deletes in the opposite order."""

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


class CallScope(StrEnum):
    """The parameters that the items of a call share, as the JSON list in ``plan_item.scope``."""

    NONE = "none"
    """``[]``"""
    DISABLED = "disabled"
    """``[true]`` or ``[false]``"""
    ORGANIZATION = "organization"
    """``["acme"]``"""
    CONTAINER = "container"
    """``["acme","folder","specs"]``: the organization, the kind of container and its id"""
    PARENT = "parent"
    """``["acme","specs"]``: the organization and the parent folder, empty at the top"""
    ACCESS = "access"
    """``["acme","restricted"]``: the organization and the access type, empty for "inherit" """
    ITEM = "item"
    """``["acme","specs"]``: the organization and the item, for operations on one item"""


@dataclass(frozen=True, slots=True)
class AspectRule:
    """The operation for one aspect of one kind."""

    kind: Kind
    aspect: Aspect
    action: Action
    phase: Phase
    operation: str
    scope: CallScope
    reason: str
    """Why, without the ids of the item. ``{state}``: enabled or disabled. ``{holder}``: the user, or the group through
    which they have access."""
    sends_payload: bool = False
    """Whether the operation sends the record's fields."""


_O, _F, _D, _G = Kind.ORGANIZATION, Kind.FOLDER, Kind.DOCUMENT, Kind.GROUP
_OU, _FU, _DU, _GM = Kind.ORGANIZATION_USER, Kind.FOLDER_USER, Kind.DOCUMENT_USER, Kind.GROUP_MEMBER
_ADD, _UPDATE, _DELETE = Action.ADD, Action.UPDATE, Action.DELETE

# fmt: off
RULES: tuple[AspectRule, ...] = (
    AspectRule(_O, Aspect.NEW, _ADD, Phase.ADD_ORGANIZATIONS, "add_organizations", CallScope.NONE,
         "not in the backend yet", sends_payload=True),
    AspectRule(_O, Aspect.CONTENT, _UPDATE, Phase.UPDATE_ORGANIZATIONS, "update_organizations", CallScope.NONE,
         "its fields changed", sends_payload=True),
    AspectRule(_O, Aspect.DISABLED, _UPDATE, Phase.DISABLE_ORGANIZATIONS, "disable_organizations", CallScope.DISABLED,
         "{state} in the directory"),
    AspectRule(_O, Aspect.GONE, _DELETE, Phase.DELETE_ORGANIZATIONS, "delete_organizations", CallScope.NONE,
         "no longer in the directory"),

    AspectRule(_F, Aspect.NEW, _ADD, Phase.ADD_FOLDERS, "add_folder", CallScope.ORGANIZATION,
         "not in the backend yet", sends_payload=True),
    AspectRule(_F, Aspect.CONTENT, _UPDATE, Phase.UPDATE_FOLDERS, "update_folder", CallScope.ORGANIZATION,
         "its fields or the folder above it changed", sends_payload=True),
    AspectRule(_F, Aspect.ACCESS, _UPDATE, Phase.FOLDER_ACCESS, "update_folder_access", CallScope.ACCESS,
         "its access type changed"),
    AspectRule(_F, Aspect.GONE, _DELETE, Phase.DELETE_FOLDERS, "delete_folder", CallScope.ITEM,
         "no longer in the directory"),

    AspectRule(_D, Aspect.NEW, _ADD, Phase.ADD_DOCUMENTS, "add_documents", CallScope.PARENT,
         "not in the backend yet", sends_payload=True),
    AspectRule(_D, Aspect.CONTENT, _UPDATE, Phase.UPDATE_DOCUMENTS, "update_documents", CallScope.ORGANIZATION,
         "its fields changed", sends_payload=True),
    AspectRule(_D, Aspect.PARENT, _UPDATE, Phase.MOVE_DOCUMENTS, "move_documents", CallScope.PARENT,
         "it lies in another folder"),
    AspectRule(_D, Aspect.ACCESS, _UPDATE, Phase.DOCUMENT_ACCESS, "update_document_access", CallScope.ACCESS,
         "its access type changed"),
    AspectRule(_D, Aspect.GONE, _DELETE, Phase.DELETE_DOCUMENTS, "delete_documents", CallScope.ORGANIZATION,
         "no longer in the directory"),

    AspectRule(_G, Aspect.NEW, _ADD, Phase.ADD_GROUPS, "add_groups", CallScope.ORGANIZATION,
         "not in the backend yet", sends_payload=True),
    AspectRule(_G, Aspect.GONE, _DELETE, Phase.EMPTY_GROUPS, "delete_users_from_groups", CallScope.ITEM,
         "no longer in the directory"),

    AspectRule(_OU, Aspect.NEW, _ADD, Phase.ORGANIZATION_USERS, "add_users", CallScope.ORGANIZATION,
         "membership of the organization", sends_payload=True),
    AspectRule(_OU, Aspect.CONTENT, _UPDATE, Phase.ORGANIZATION_USERS, "update_users", CallScope.ORGANIZATION,
         "membership of the organization", sends_payload=True),
    AspectRule(_OU, Aspect.GONE, _DELETE, Phase.DELETE_ORGANIZATION_USERS, "delete_users", CallScope.ORGANIZATION,
         "no membership of the organization any more"),

    AspectRule(_FU, Aspect.NEW, _ADD, Phase.FOLDER_AND_DOCUMENT_USERS, "add_users", CallScope.CONTAINER,
         "granted to {holder}", sends_payload=True),
    AspectRule(_FU, Aspect.CONTENT, _UPDATE, Phase.FOLDER_AND_DOCUMENT_USERS, "update_users", CallScope.CONTAINER,
         "granted to {holder}", sends_payload=True),
    AspectRule(_FU, Aspect.GONE, _DELETE, Phase.DELETE_FOLDER_AND_DOCUMENT_USERS, "delete_users", CallScope.CONTAINER,
         "no grant on the folder any more"),
    AspectRule(_FU, Aspect.RESTORED, _ADD, Phase.RESTORE_FOLDER_AND_DOCUMENT_USERS, "add_users", CallScope.CONTAINER,
         "granted to {holder}; again, as the user leaves the organization",
         sends_payload=True),

    AspectRule(_DU, Aspect.NEW, _ADD, Phase.FOLDER_AND_DOCUMENT_USERS, "add_users", CallScope.CONTAINER,
         "granted to {holder}", sends_payload=True),
    AspectRule(_DU, Aspect.CONTENT, _UPDATE, Phase.FOLDER_AND_DOCUMENT_USERS, "update_users", CallScope.CONTAINER,
         "granted to {holder}", sends_payload=True),
    AspectRule(_DU, Aspect.GONE, _DELETE, Phase.DELETE_FOLDER_AND_DOCUMENT_USERS, "delete_users", CallScope.CONTAINER,
         "no grant on the document any more"),
    AspectRule(_DU, Aspect.RESTORED, _ADD, Phase.RESTORE_FOLDER_AND_DOCUMENT_USERS, "add_users", CallScope.CONTAINER,
         "granted to {holder}; again, as the user leaves the organization",
         sends_payload=True),

    AspectRule(_GM, Aspect.NEW, _ADD, Phase.GROUP_MEMBERS, "add_users_to_groups", CallScope.CONTAINER,
         "{holder}"),
    AspectRule(_GM, Aspect.GONE, _DELETE, Phase.DELETE_GROUP_MEMBERS, "delete_users_from_groups", CallScope.CONTAINER,
         "not in the group any more"),
    AspectRule(_GM, Aspect.RESTORED, _ADD, Phase.RESTORE_GROUP_MEMBERS, "add_users_to_groups", CallScope.CONTAINER,
         "{holder}; again, as the user leaves the organization"),
)
# fmt: on
