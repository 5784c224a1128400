"""Organization user groups: named sets of an organization's users."""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from app.contract import limits
from app.contract.base import Described, Id, Ids, InOrganization, JsonObject, Text


class GroupInput(Described):
    """A group as it is written."""

    group_id: Id
    group_name: Text | None = None


class AddGroupsRequest(InOrganization):
    organization_user_groups: Annotated[list[GroupInput], Field(max_length=limits.BATCH_ITEMS)]
    create_organization: bool | None = None


class AddUsersToGroupsRequest(InOrganization):
    organization_user_group_id: Id
    user_ids: Ids


def _named_or_all(schema: JsonObject) -> None:
    named: JsonObject = {
        "required": ["userIds"],
        "properties": {"userIds": {"type": "array"}, "deleteAll": {"not": {"const": True}}},
    }
    everyone: JsonObject = {
        "required": ["deleteAll"],
        "properties": {"userIds": {"type": "null"}, "deleteAll": {"const": True}},
    }
    schema["anyOf"] = [named, everyone]


class DeleteUsersFromGroupsRequest(InOrganization):
    """Takes the named users out of a group, or everyone with ``deleteAll`` true and no ``userIds``."""

    model_config = ConfigDict(json_schema_extra=_named_or_all)

    organization_user_group_id: Id
    user_ids: Ids | None = None
    delete_all: bool | None = None

    @model_validator(mode="after")
    def _names_or_all(self) -> Self:
        if self.delete_all and self.user_ids is not None:
            raise ValueError("give either userIds or deleteAll true, not both")
        if not self.delete_all and self.user_ids is None:
            raise ValueError("give userIds or deleteAll true")
        return self
