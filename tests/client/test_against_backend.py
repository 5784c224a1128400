"""The client against the self-hosted backend in the same process."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from app.backend.app import create_backend
from app.backend.schema import METADATA
from app.backend.security.outgoing import open_session
from app.backend.settings import SelfHostedBackendSettings
from app.client.client import BackendClient
from app.client.credentials import WorkspaceCredentials
from app.client.errors import BackendRefused, CredentialsRefused, InvalidRequest, OperationMissing
from app.client.response import item_results
from app.contract import operations
from app.contract.base import NoParameters
from app.contract.errors import Status
from app.contract.folders import DeleteFolderRequest
from app.contract.organizations import AddOrganizationsRequest
from app.contract.tokens import GetAuthTokensRequest, ResetAuthTokenRequest
from app.contract.users import AddUsersRequest, DeleteUsersRequest, GetUsersRequest, User, UserInput
from app.contract.workspace import CreateWorkspaceRequest
from app.foundation.database.engine import open_engine
from tests.tables import make_tables
from tests.wsgi import WsgiAdapter

BASE = "http://backend.internal"


@pytest.fixture
def wsgi(database_url: str) -> Iterator[WsgiAdapter]:
    settings = SelfHostedBackendSettings.model_validate(
        {"database_url": database_url, "secret_key": "a secret key for tests only"}
    )
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    noon = datetime(2026, 11, 20, 12, tzinfo=UTC)
    session = open_session(allow_private=True)
    yield WsgiAdapter(create_backend(settings, engine, lambda: noon, random.Random(1), session))
    engine.dispose()


@pytest.fixture
def owner(wsgi: WsgiAdapter, connect: Callable[..., BackendClient]) -> BackendClient:
    """A client with the credentials of a new workspace and its API key."""
    anyone = connect(BASE, parts={"transport": wsgi})
    workspace = anyone.call(
        operations.CREATE_WORKSPACE, CreateWorkspaceRequest(owner_email="ada@acme-company.com")
    ).data
    credentials = WorkspaceCredentials(SecretStr(workspace.id), SecretStr(str(workspace.auth_token)))
    (api_key,) = workspace.api_key_list
    as_owner = connect(BASE, parts={"transport": wsgi, "workspace": credentials})
    tokens = as_owner.call(operations.GET_AUTH_TOKENS, GetAuthTokensRequest(api_key=api_key)).data.auth_tokens
    parts = {"transport": wsgi, "workspace": credentials}
    return connect(BASE, parts=parts, api_key=api_key, auth_token=tokens[0].token)


def test_users_are_added_read_by_page_and_deleted(owner: BackendClient) -> None:
    users = [{"userId": f"user/{number} ☃", "name": f"User {number}", "plan": "gold"} for number in range(25)]
    request = AddUsersRequest.from_wire({"organizationId": "acme", "users": users, "createOrganization": True})
    outcome = item_results(owner.call(operations.ADD_USERS, request).data)
    assert len(outcome) == 25
    assert all(item.success for item in outcome.values())
    pages = list(owner.pages(operations.GET_USERS, GetUsersRequest(organization_id="acme", page_size=10)))
    assert [len(page.data) for page in pages] == [10, 10, 5]
    people = [user for page in pages for user in page.data if isinstance(user, User)]
    read = {user.user_id: user.unknown_fields()["plan"] for user in people}
    assert read == {user["userId"]: "gold" for user in users}
    gone = owner.call(
        operations.DELETE_USERS, DeleteUsersRequest(organization_id="acme", user_ids=["user/1 ☃", "nobody"])
    )
    deleted = item_results(gone.data)
    assert deleted["user/1 ☃"].success
    assert deleted["nobody"].does_not_exist


def test_refusals_have_their_error_classes(
    owner: BackendClient, wsgi: WsgiAdapter, connect: Callable[..., BackendClient]
) -> None:
    with pytest.raises(CredentialsRefused):
        connect(BASE, parts={"transport": wsgi}, auth_token="wrong-token").call(
            operations.GET_PERMISSION_PROVIDER_CONFIG, NoParameters()
        )
    with pytest.raises(InvalidRequest, match=r"data\.users\[0\]\.userId"):
        owner.call(
            operations.ADD_USERS,
            AddUsersRequest.model_construct(organization_id="acme", users=[UserInput.model_construct(user_id="")]),
        )
    with pytest.raises(BackendRefused) as caught:
        owner.call(operations.RESET_AUTH_TOKEN, ResetAuthTokenRequest(api_key="unknown"))
    assert caught.value.status is Status.NOT_FOUND
    with pytest.raises(OperationMissing) as missing:
        owner.call(operations.DELETE_FOLDER, DeleteFolderRequest(organization_id="nowhere", folder_id="x"))
    assert missing.value.may_mean_missing_object


def test_existing_items_are_recognized(owner: BackendClient) -> None:
    request = AddOrganizationsRequest.from_wire({"organizations": [{"organizationId": "o", "organizationName": "O"}]})
    assert item_results(owner.call(operations.ADD_ORGANIZATIONS, request).data)["o"].success
    assert item_results(owner.call(operations.ADD_ORGANIZATIONS, request).data)["o"].already_exists
