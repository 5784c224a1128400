"""A user's feature data, by page."""

from pydantic import Field

from app.contract.base import Id, InOrganization, JsonObject, PageToken, WireModel


class GetAllUserDataRequest(InOrganization):
    user_id: Id
    page_token: PageToken | None = None


class UserData(WireModel):
    """A page has at most ``limits.USER_DATA_PAGE`` items of each list. The reference does not show the structure of
    items, and mentions memberships without a field for them.
    """

    memberships: list[JsonObject] = Field(default_factory=list)
    comments: list[JsonObject] = Field(default_factory=list)
    reactions: list[JsonObject] = Field(default_factory=list)
    recordings: list[JsonObject] = Field(default_factory=list)
    notifications: list[JsonObject] = Field(default_factory=list)
