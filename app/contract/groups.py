"""Requests about organization user groups, which are named sets of an organization's users."""

from typing import Self

from pydantic import ConfigDict, model_validator

from app.contract.base import Batch, Id, Ids, InOrganization, JsonObject, Text, WithMetadata


class GroupInput(WithMetadata):
    """A group in a request."""

    group_id: Id
    group_name: Text | None = None


class AddGroupsRequest(InOrganization):
    organization_user_groups: Batch[GroupInput]
    create_organization: bool | None = None


class AddUsersToGroupsRequest(InOrganization):
    organization_user_group_id: Id
    user_ids: Ids


_IDS_OR_ALL: JsonObject = {
    "anyOf": [
        {"required": ["userIds"], "properties": {"userIds": {"type": "array"}, "deleteAll": {"not": {"const": True}}}},
        {"required": ["deleteAll"], "properties": {"userIds": {"type": "null"}, "deleteAll": {"const": True}}},
    ]
}


class DeleteUsersFromGroupsRequest(InOrganization):
    """Removes users from a group: those with these ids, or all with ``deleteAll`` true and no ``userIds``."""

    model_config = ConfigDict(json_schema_extra=_IDS_OR_ALL)

    organization_user_group_id: Id
    user_ids: Ids | None = None
    delete_all: bool | None = None

    @model_validator(mode="after")
    def _check_ids_or_all(self) -> Self:
        if self.delete_all and self.user_ids is not None:
            raise ValueError("give either userIds or deleteAll true, not both")
        if not self.delete_all and self.user_ids is None:
            raise ValueError("give userIds or deleteAll true")
        return self
