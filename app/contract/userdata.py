"""A user's feature data, in pages."""

from pydantic import Field

from app.contract.base import Id, InOrganization, JsonObject, PageToken, WireModel


class GetAllUserDataRequest(InOrganization):
    user_id: Id
    page_token: PageToken | None = None


class UserData(WireModel):
    """At most ``limits.USER_DATA_PAGE`` items of each; the reference does not show their structure. It names
    memberships among the data but shows no array for them.
    """

    memberships: list[JsonObject] = Field(default_factory=list)
    comments: list[JsonObject] = Field(default_factory=list)
    reactions: list[JsonObject] = Field(default_factory=list)
    recordings: list[JsonObject] = Field(default_factory=list)
    notifications: list[JsonObject] = Field(default_factory=list)
