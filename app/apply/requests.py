"""Requests of the contract made of a plan's items, and the item that each answer belongs to.

Only here do the two vocabularies meet. A batch's items share their operation and scope, so what the call carries
beside them is read from the first.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from app.contract import documents, folders, groups, organizations, users
from app.contract import operations as contract
from app.contract.base import Request
from app.contract.folders import ROOT_FOLDER_ID
from app.plan.rules import Kind
from app.plan.stored import PlanItem

Items = Sequence[PlanItem]

_SAID_OF_ACCESS = ("accessRole", "expiresAt")
"""What Add Users takes as a word on access. A field of a user's that happens to have such a name must not pass for one:
memberships and grants decide that. (Nor does Usher tell the backend when access ends: it takes away what has ended.)"""


class NotExpressibleError(ValueError):
    """The contract has no way of saying this."""


@dataclass(frozen=True, slots=True)
class RequestForm:
    """How much a backend understands."""

    without_roles: bool = False
    """Roles and access types of folders are left out: the path under the first version does not know them."""
    make_documents: bool = False
    """Documents come into being with their first user: nothing else makes them."""
    make_organizations: bool = False
    """Organizations come into being with what is put into them."""


def request_of(operation: str, items: Items, form: RequestForm = RequestForm()) -> Request:
    """The request that carries the items, all of one scope, by ``operation``.

    Usually the items' own operation; another one where an add has to become an update or the other way round. Raises
    ``NotExpressibleError``.
    """
    return _REQUESTS[operation](items, form)


def batch_limit(operation: str, batch_size: int) -> int:
    """How many items a call of the operation may carry at most."""
    contracted = contract.by_name(operation)
    if contracted.items_field is None:
        return 1
    if contracted.max_items is None:
        return batch_size
    return max(1, min(batch_size, contracted.max_items))


def takes_all_members(item: PlanItem) -> bool:
    """Whether it empties a whole group: the call then carries no ids, and its answer names whom it found."""
    return item.kind == Kind.GROUP and item.operation == "delete_users_from_groups"


def _fields(item: PlanItem) -> dict[str, object]:
    fields: dict[str, object] = json.loads(item.payload) if item.payload else {}
    return fields


def _level(item: PlanItem) -> dict[str, object]:
    level: dict[str, object] = {"organizationId": item.organization_id}
    if item.kind == Kind.FOLDER_USER:
        level["folderId"] = item.container_id
    elif item.kind == Kind.DOCUMENT_USER:
        level["documentId"] = item.container_id
    return level


def _users(items: Items, form: RequestForm) -> list[dict[str, object]]:
    people = []
    for item in items:
        fields = _fields(item)
        for name in _SAID_OF_ACCESS:
            fields.pop(name, None)
        person = fields | {"userId": item.item_id}
        if not form.without_roles and item.access_role:
            person["accessRole"] = item.access_role
        people.append(person)
    return people


def _add_users(items: Items, form: RequestForm) -> Request:
    data = _level(items[0]) | {"users": _users(items, form)}
    if form.make_documents and items[0].kind == Kind.DOCUMENT_USER:
        # Without Add Documents a document comes into being with its first user.
        data["createDocument"] = True
    return users.AddUsersRequest.from_wire(data)


def _update_users(items: Items, form: RequestForm) -> Request:
    return users.UpdateUsersRequest.from_wire(_level(items[0]) | {"users": _users(items, form)})


def _delete_users(items: Items, form: RequestForm) -> Request:
    del form
    return users.DeleteUsersRequest.from_wire(_level(items[0]) | {"userIds": _ids(items)})


def _add_users_to_groups(items: Items, form: RequestForm) -> Request:
    del form
    return groups.AddUsersToGroupsRequest.from_wire(_group(items[0]) | {"userIds": _ids(items)})


def _delete_users_from_groups(items: Items, form: RequestForm) -> Request:
    del form
    whom = {"deleteAll": True} if takes_all_members(items[0]) else {"userIds": _ids(items)}
    return groups.DeleteUsersFromGroupsRequest.from_wire(_group(items[0]) | whom)


def _group(item: PlanItem) -> dict[str, object]:
    group_id = item.item_id if item.kind == Kind.GROUP else item.container_id
    return {"organizationId": item.organization_id, "organizationUserGroupId": group_id}


def _add_groups(items: Items, form: RequestForm) -> Request:
    del form
    added = []
    for item in items:
        fields = _fields(item)
        # Only here the contract calls this id by a shorter name.
        fields.pop("organizationUserGroupId", None)
        added.append(fields | {"groupId": item.item_id})
    return groups.AddGroupsRequest.from_wire(
        {"organizationId": items[0].organization_id, "organizationUserGroups": added}
    )


def _add_organizations(items: Items, form: RequestForm) -> Request:
    del form
    return organizations.AddOrganizationsRequest.from_wire({"organizations": _organizations(items)})


def _update_organizations(items: Items, form: RequestForm) -> Request:
    del form
    return organizations.UpdateOrganizationsRequest.from_wire({"organizations": _organizations(items)})


def _organizations(items: Items) -> list[dict[str, object]]:
    return [_fields(item) | {"organizationId": item.item_id} for item in items]


def _delete_organizations(items: Items, form: RequestForm) -> Request:
    del form
    return organizations.DeleteOrganizationsRequest.from_wire({"organizationIds": _ids(items)})


def _disable_organizations(items: Items, form: RequestForm) -> Request:
    del form
    return organizations.DisableOrganizationsRequest.from_wire(
        {"organizationIds": _ids(items), "disabled": items[0].disabled}
    )


def _add_folder(items: Items, form: RequestForm) -> Request:
    added = []
    for item in items:
        folder = _fields(item) | {"folderId": item.item_id}
        if item.parent_id:
            folder["parentFolderId"] = item.parent_id
        if item.access_type and not form.without_roles:
            folder["accessType"] = item.access_type
        added.append(folder)
    data = _in_organization(items) | {"folders": added}
    if form.make_organizations:
        data["createOrganization"] = True
    return folders.AddFolderRequest.from_wire(data)


def _update_folder(items: Items, form: RequestForm) -> Request:
    del form
    changed = [
        _fields(item) | {"folderId": item.item_id, "parentFolderId": item.parent_id or ROOT_FOLDER_ID} for item in items
    ]
    return folders.UpdateFolderRequest.from_wire(_in_organization(items) | {"folders": changed})


def _update_folder_access(items: Items, form: RequestForm) -> Request:
    del form
    access = {"accessType": items[0].access_type} if items[0].access_type else {"inheritFromParent": True}
    return folders.UpdateFolderAccessRequest.from_wire(_in_organization(items) | {"folderIds": _ids(items)} | access)


def _delete_folder(items: Items, form: RequestForm) -> Request:
    del form
    return folders.DeleteFolderRequest.from_wire(_in_organization(items) | {"folderId": items[0].item_id})


def _add_documents(items: Items, form: RequestForm) -> Request:
    del form
    data = _in_organization(items) | {"documents": _documents(items)}
    if items[0].parent_id:
        data["folderId"] = items[0].parent_id
    return documents.AddDocumentsRequest.from_wire(data)


def _update_documents(items: Items, form: RequestForm) -> Request:
    del form
    return documents.UpdateDocumentsRequest.from_wire(_in_organization(items) | {"documents": _documents(items)})


def _documents(items: Items) -> list[dict[str, object]]:
    return [_fields(item) | {"documentId": item.item_id} for item in items]


def _move_documents(items: Items, form: RequestForm) -> Request:
    del form
    folder_id = items[0].parent_id or ROOT_FOLDER_ID
    data = _in_organization(items) | {"documentIds": _ids(items), "folderId": folder_id}
    return documents.MoveDocumentsRequest.from_wire(data)


def _update_document_access(items: Items, form: RequestForm) -> Request:
    del form
    if not items[0].access_type:
        raise NotExpressibleError("the contract cannot take a document's own access type away again")
    return documents.UpdateDocumentAccessRequest.from_wire(
        _in_organization(items) | {"documentIds": _ids(items), "accessType": items[0].access_type}
    )


def _delete_documents(items: Items, form: RequestForm) -> Request:
    del form
    return documents.DeleteDocumentsRequest.from_wire(_in_organization(items) | {"documentIds": _ids(items)})


def _in_organization(items: Items) -> dict[str, object]:
    return {"organizationId": items[0].organization_id}


def _ids(items: Items) -> list[str]:
    return [item.item_id for item in items]


_REQUESTS: Mapping[str, Callable[[Items, RequestForm], Request]] = MappingProxyType(
    {
        "add_organizations": _add_organizations,
        "update_organizations": _update_organizations,
        "delete_organizations": _delete_organizations,
        "disable_organizations": _disable_organizations,
        "add_folder": _add_folder,
        "update_folder": _update_folder,
        "update_folder_access": _update_folder_access,
        "delete_folder": _delete_folder,
        "add_documents": _add_documents,
        "update_documents": _update_documents,
        "move_documents": _move_documents,
        "update_document_access": _update_document_access,
        "delete_documents": _delete_documents,
        "add_groups": _add_groups,
        "add_users": _add_users,
        "update_users": _update_users,
        "delete_users": _delete_users,
        "add_users_to_groups": _add_users_to_groups,
        "delete_users_from_groups": _delete_users_from_groups,
    }
)
