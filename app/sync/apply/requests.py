"""Builds requests of the contract from plan items, and sends them.

The items of a batch share operation and scope, so the other fields of the request come from the first item.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from app.client.client import BackendClient
from app.client.errors import BackendRefused, OperationMissing
from app.client.response import ItemAnswer, item_results
from app.contract import operations as contract
from app.contract.base import Request
from app.contract.errors import Status
from app.contract.folders import ROOT_FOLDER_ID
from app.contract.organizations import GetOrganizationsRequest
from app.sync.ledger.items import Kind
from app.sync.plan.stored import PlanItem

Items = Sequence[PlanItem]

_ACCESS_FIELDS = frozenset({"accessRole", "expiresAt"})
"""Fields with which Add Users sets access. Fields of users with these names are not sent, because memberships and
grants decide access. Usher sends no ``expiresAt``: it removes access that has ended."""


class NotExpressibleError(ValueError):
    """The contract has no request for this."""


@dataclass(frozen=True, slots=True)
class RequestForm:
    """Which variant of a request a backend supports."""

    without_roles: bool = False
    """Omit roles and access types of folders, which the path of the first version does not support."""
    make_documents: bool = False
    """Create documents with their first user."""
    make_organizations: bool = False
    """Create organizations with their contents."""


def request_of(operation: str, items: Items, form: RequestForm = RequestForm()) -> Request:
    """The request for items of one scope. Raises ``NotExpressibleError``.

    ``operation`` is the items' own, or its counterpart: an update instead of an add, or the opposite.
    """
    model: type[Request] = contract.by_name(operation).request
    return model.from_wire(_DATA[operation](items, form))


def batch_limit(operation: str, batch_size: int) -> int:
    """The maximum of items in a call of the operation."""
    contracted = contract.by_name(operation)
    if contracted.items_field is None:
        return 1
    return max(1, min(batch_size, contracted.max_items))


def takes_all_members(item: PlanItem) -> bool:
    """Whether the item empties a group: the call names no members, but its answer does."""
    return item.kind == Kind.GROUP and item.operation == "delete_users_from_groups"


def _fields(item: PlanItem) -> dict[str, object]:
    fields: dict[str, object] = json.loads(item.payload) if item.payload else {}
    return fields


def _each(items: Items, id_field: str) -> list[dict[str, object]]:
    return [_fields(item) | {id_field: item.item_id} for item in items]


def _ids(items: Items) -> list[str]:
    return [item.item_id for item in items]


def _organization(items: Items) -> dict[str, object]:
    return {"organizationId": items[0].organization_id}


def _level(items: Items) -> dict[str, object]:
    level = _organization(items)
    if items[0].kind == Kind.FOLDER_USER:
        level["folderId"] = items[0].container_id
    elif items[0].kind == Kind.DOCUMENT_USER:
        level["documentId"] = items[0].container_id
    return level


def _group(items: Items) -> dict[str, object]:
    item = items[0]
    group_id = item.item_id if item.kind == Kind.GROUP else item.container_id
    return _organization(items) | {"organizationUserGroupId": group_id}


def _users(items: Items, form: RequestForm) -> dict[str, object]:
    users = []
    for item in items:
        user = {name: value for name, value in _fields(item).items() if name not in _ACCESS_FIELDS}
        user["userId"] = item.item_id
        if not form.without_roles and item.access_role:
            user["accessRole"] = item.access_role
        users.append(user)
    return _level(items) | {"users": users}


def _add_users(items: Items, form: RequestForm) -> dict[str, object]:
    data = _users(items, form)
    if form.make_documents and items[0].kind == Kind.DOCUMENT_USER:
        data["createDocument"] = True
    return data


def _delete_users_from_groups(items: Items, _: RequestForm) -> dict[str, object]:
    return _group(items) | ({"deleteAll": True} if takes_all_members(items[0]) else {"userIds": _ids(items)})


def _add_groups(items: Items, _: RequestForm) -> dict[str, object]:
    added = _each(items, "groupId")
    for group in added:
        # Only this operation has a shorter name for the id.
        group.pop("organizationUserGroupId", None)
    return _organization(items) | {"organizationUserGroups": added}


def _add_folder(items: Items, form: RequestForm) -> dict[str, object]:
    added = _each(items, "folderId")
    for item, folder in zip(items, added, strict=True):
        if item.parent_id:
            folder["parentFolderId"] = item.parent_id
        if item.access_type and not form.without_roles:
            folder["accessType"] = item.access_type
    data = _organization(items) | {"folders": added}
    if form.make_organizations:
        data["createOrganization"] = True
    return data


def _update_folder(items: Items, _: RequestForm) -> dict[str, object]:
    changed = _each(items, "folderId")
    for item, folder in zip(items, changed, strict=True):
        folder["parentFolderId"] = item.parent_id or ROOT_FOLDER_ID
    return _organization(items) | {"folders": changed}


def _update_folder_access(items: Items, _: RequestForm) -> dict[str, object]:
    access = {"accessType": items[0].access_type} if items[0].access_type else {"inheritFromParent": True}
    return _organization(items) | {"folderIds": _ids(items)} | access


def _add_documents(items: Items, _: RequestForm) -> dict[str, object]:
    folder = {"folderId": items[0].parent_id} if items[0].parent_id else {}
    return _organization(items) | {"documents": _each(items, "documentId")} | folder


def _move_documents(items: Items, _: RequestForm) -> dict[str, object]:
    return _organization(items) | {"documentIds": _ids(items), "folderId": items[0].parent_id or ROOT_FOLDER_ID}


def _update_document_access(items: Items, _: RequestForm) -> dict[str, object]:
    if not items[0].access_type:
        raise NotExpressibleError("the contract cannot remove the access type of a document")
    return _organization(items) | {"documentIds": _ids(items), "accessType": items[0].access_type}


_DATA: Mapping[str, Callable[[Items, RequestForm], dict[str, object]]] = {
    "add_organizations": lambda items, _: {"organizations": _each(items, "organizationId")},
    "update_organizations": lambda items, _: {"organizations": _each(items, "organizationId")},
    "delete_organizations": lambda items, _: {"organizationIds": _ids(items)},
    "disable_organizations": lambda items, _: {"organizationIds": _ids(items), "disabled": items[0].disabled},
    "add_folder": _add_folder,
    "update_folder": _update_folder,
    "update_folder_access": _update_folder_access,
    "delete_folder": lambda items, _: _organization(items) | {"folderId": items[0].item_id},
    "add_documents": _add_documents,
    "update_documents": lambda items, _: _organization(items) | {"documents": _each(items, "documentId")},
    "move_documents": _move_documents,
    "update_document_access": _update_document_access,
    "delete_documents": lambda items, _: _organization(items) | {"documentIds": _ids(items)},
    "add_groups": _add_groups,
    "add_users": _add_users,
    "update_users": _users,
    "delete_users": lambda items, _: _level(items) | {"userIds": _ids(items)},
    "add_users_to_groups": lambda items, _: _group(items) | {"userIds": _ids(items)},
    "delete_users_from_groups": _delete_users_from_groups,
}
"""The ``data`` of each request."""


@dataclass
class BackendWrites:
    """The write calls of a run, and probes of the backend. Every method may raise ``ClientError``."""

    client: BackendClient

    def write(self, operation: str, request: Request, *, without_roles: bool) -> Mapping[str, ItemAnswer] | None:
        """Sends a request and returns the answers of items, by id. None if the answer mentions none.

        ``without_roles``: uses the path without roles and access types, if the operation has two.
        """
        contracted = contract.by_name(operation)
        other_version = contracted.roles_in_other_version and not without_roles
        answer = self.client.call(contracted, request, other_version=other_version)
        items = answer.data if contracted.result is contract.ITEMS else answer.items
        if not isinstance(items, Mapping):
            return None
        return item_results(items, maybe_applied_earlier=answer.maybe_applied_earlier)

    def organization_exists(self, organization_id: str) -> bool:
        """Whether the backend has the organization."""
        request = GetOrganizationsRequest(organization_ids=[organization_id])
        organizations = self.client.call(contract.GET_ORGANIZATIONS, request).data
        return any(organization.id == organization_id for organization in organizations)

    def has_operation(self, operation: str, organization_id: str, *, with_roles: bool = False) -> bool:
        """Whether the backend has the operation. Sends a call that changes nothing.

        ``with_roles``: probes the path with roles and access types.
        """
        contracted = contract.by_name(operation)
        if contracted.probed_by is not None:
            contracted = contract.by_name(contracted.probed_by)
        request = contracted.empty_request(organization_id)
        try:
            self.client.call(contracted, request, other_version=with_roles)
        except OperationMissing:
            return False
        except BackendRefused as error:
            # On the path without roles, "not found" is about the organization.
            return not (with_roles and error.status is Status.NOT_FOUND)
        return True
