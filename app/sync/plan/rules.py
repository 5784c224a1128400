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


ASPECT_BITS = {name.lower(): str(int(aspect)) for name, aspect in Aspect.__members__.items()}
"""Aspects as parts of SQL statements, such as ``{gone}``."""


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
    phase: Phase
    operation: str
    scope: CallScope
    reason: str
    """Why, without the ids of the item. ``{state}``: enabled or disabled. ``{holder}``: the user, or the group through
    which they have access."""
    sends_payload: bool = False
    """Whether the operation sends the record's fields."""

    @property
    def action(self) -> Action:
        return _ACTIONS.get(self.aspect, Action.UPDATE)


_ACTIONS = {Aspect.NEW: Action.ADD, Aspect.RESTORED: Action.ADD, Aspect.GONE: Action.DELETE}

_O, _F, _D, _G = Kind.ORGANIZATION, Kind.FOLDER, Kind.DOCUMENT, Kind.GROUP
_OU, _GM = Kind.ORGANIZATION_USER, Kind.GROUP_MEMBER
_MISSING, _GONE = "not in the backend yet", "no longer in the directory"
_GRANT = "granted to {holder}"
_AGAIN = "; added again, because deleting the user from the organization removes it"

# fmt: off
RULES: tuple[AspectRule, ...] = (
    AspectRule(_O, Aspect.NEW, Phase.ADD_ORGANIZATIONS, "add_organizations", CallScope.NONE, _MISSING,
               sends_payload=True),
    AspectRule(_O, Aspect.CONTENT, Phase.UPDATE_ORGANIZATIONS, "update_organizations", CallScope.NONE,
               "its fields changed", sends_payload=True),
    AspectRule(_O, Aspect.DISABLED, Phase.DISABLE_ORGANIZATIONS, "disable_organizations", CallScope.DISABLED,
               "{state} in the directory"),
    AspectRule(_O, Aspect.GONE, Phase.DELETE_ORGANIZATIONS, "delete_organizations", CallScope.NONE, _GONE),

    AspectRule(_F, Aspect.NEW, Phase.ADD_FOLDERS, "add_folder", CallScope.ORGANIZATION, _MISSING, sends_payload=True),
    AspectRule(_F, Aspect.CONTENT, Phase.UPDATE_FOLDERS, "update_folder", CallScope.ORGANIZATION,
               "its fields or the folder above it changed", sends_payload=True),
    AspectRule(_F, Aspect.ACCESS, Phase.FOLDER_ACCESS, "update_folder_access", CallScope.ACCESS,
               "its access type changed"),
    AspectRule(_F, Aspect.GONE, Phase.DELETE_FOLDERS, "delete_folder", CallScope.ITEM, _GONE),

    AspectRule(_D, Aspect.NEW, Phase.ADD_DOCUMENTS, "add_documents", CallScope.PARENT, _MISSING, sends_payload=True),
    AspectRule(_D, Aspect.CONTENT, Phase.UPDATE_DOCUMENTS, "update_documents", CallScope.ORGANIZATION,
               "its fields changed", sends_payload=True),
    AspectRule(_D, Aspect.PARENT, Phase.MOVE_DOCUMENTS, "move_documents", CallScope.PARENT,
               "it is in another folder"),
    AspectRule(_D, Aspect.ACCESS, Phase.DOCUMENT_ACCESS, "update_document_access", CallScope.ACCESS,
               "its access type changed"),
    AspectRule(_D, Aspect.GONE, Phase.DELETE_DOCUMENTS, "delete_documents", CallScope.ORGANIZATION, _GONE),

    AspectRule(_G, Aspect.NEW, Phase.ADD_GROUPS, "add_groups", CallScope.ORGANIZATION, _MISSING, sends_payload=True),
    AspectRule(_G, Aspect.GONE, Phase.EMPTY_GROUPS, "delete_users_from_groups", CallScope.ITEM, _GONE),

    AspectRule(_OU, Aspect.NEW, Phase.ORGANIZATION_USERS, "add_users", CallScope.ORGANIZATION,
               "a member of the organization, not in the backend yet",
               sends_payload=True),
    AspectRule(_OU, Aspect.CONTENT, Phase.ORGANIZATION_USERS, "update_users", CallScope.ORGANIZATION,
               "its role or the user's fields changed",
               sends_payload=True),
    AspectRule(_OU, Aspect.GONE, Phase.DELETE_ORGANIZATION_USERS, "delete_users", CallScope.ORGANIZATION,
               "no membership of the organization any more"),

    *(
        rule
        for kind, container in ((Kind.FOLDER_USER, "folder"), (Kind.DOCUMENT_USER, "document"))
        for rule in (
            AspectRule(kind, Aspect.NEW, Phase.FOLDER_AND_DOCUMENT_USERS, "add_users", CallScope.CONTAINER, _GRANT,
                       sends_payload=True),
            AspectRule(kind, Aspect.CONTENT, Phase.FOLDER_AND_DOCUMENT_USERS, "update_users", CallScope.CONTAINER,
                       _GRANT, sends_payload=True),
            AspectRule(kind, Aspect.GONE, Phase.DELETE_FOLDER_AND_DOCUMENT_USERS, "delete_users", CallScope.CONTAINER,
                       f"no grant on the {container} any more"),
            AspectRule(kind, Aspect.RESTORED, Phase.RESTORE_FOLDER_AND_DOCUMENT_USERS, "add_users", CallScope.CONTAINER,
                       _GRANT + _AGAIN, sends_payload=True),
        )
    ),

    AspectRule(_GM, Aspect.NEW, Phase.GROUP_MEMBERS, "add_users_to_groups", CallScope.CONTAINER, "{holder}"),
    AspectRule(_GM, Aspect.GONE, Phase.DELETE_GROUP_MEMBERS, "delete_users_from_groups", CallScope.CONTAINER,
               "not in the group any more"),
    AspectRule(_GM, Aspect.RESTORED, Phase.RESTORE_GROUP_MEMBERS, "add_users_to_groups", CallScope.CONTAINER,
               "{holder}" + _AGAIN),
)
# fmt: on
