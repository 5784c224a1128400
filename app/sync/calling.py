"""How does a batch's request travel, and what is known when "not found" comes back?

The port through which batches are sent (``Caller``), and the client behind it.
"""

from collections.abc import Mapping
from typing import Protocol

from app.client.client import BackendClient
from app.client.errors import BackendRefused, OperationMissing
from app.client.items import ItemResult, item_results
from app.contract import operations as contract
from app.contract.base import Request
from app.contract.errors import Status
from app.contract.folders import GetFoldersRequest
from app.contract.organizations import GetOrganizationsRequest
from app.sync.wire import empty_request

_EXTRAS_UNDER_TWIN = frozenset({"add_users", "update_users", "add_folder"})
"""Operations that the reference has under v1 and that take roles and access types under v2 alone."""

_ASKED_BY_ANOTHER = {"delete_folder": "get_folders", "delete_organizations": "update_organizations"}


class Caller(Protocol):
    """The backend as far as writing to it goes. Every method may raise ``ClientError``."""

    def write(self, operation: str, request: Request, *, plain: bool) -> Mapping[str, ItemResult] | None:
        """What became of each item, by id; None from an operation that does not tell.

        ``plain``: by the path that takes neither roles nor access types, where there are two.
        """
        ...

    def has_plain_form(self, operation: str) -> bool:
        """Whether there are two paths."""
        ...

    def organization_exists(self, organization_id: str) -> bool:
        """Whether the backend knows the organization."""
        ...

    def has_operation(self, operation: str, organization_id: str) -> bool:
        """Whether a call that changes nothing is answered by anything but "not found"."""
        ...


class BackendCaller:
    """The client as a ``Caller``."""

    def __init__(self, client: BackendClient) -> None:
        self._client = client

    def write(self, operation: str, request: Request, *, plain: bool) -> Mapping[str, ItemResult] | None:
        contracted = contract.by_name(operation)
        answer = self._client.call(contracted, request, twin=not plain and operation in _EXTRAS_UNDER_TWIN)
        if contracted.result is not contract.ITEMS or not isinstance(answer.data, Mapping):
            return None
        return item_results(answer.data, answer.data, repeated_blindly=answer.repeated_blindly)

    def has_plain_form(self, operation: str) -> bool:
        return operation in _EXTRAS_UNDER_TWIN

    def organization_exists(self, organization_id: str) -> bool:
        request = GetOrganizationsRequest(organization_ids=[organization_id])
        return any(one.id == organization_id for one in self._client.call(contract.GET_ORGANIZATIONS, request).data)

    def has_operation(self, operation: str, organization_id: str, *, extras: bool = False) -> bool:
        """``extras``: of the two paths the one that takes roles and access types."""
        if operation in _ASKED_BY_ANOTHER:
            # A delete without its subject is no question: whoever lacks it lacks the other, too.
            operation = _ASKED_BY_ANOTHER[operation]
        contracted = contract.by_name(operation)
        request: Request = (
            GetFoldersRequest(organization_id=organization_id, max_depth=0)
            if contracted is contract.GET_FOLDERS
            else empty_request(operation, organization_id)
        )
        try:
            self._client.call(contracted, request, twin=extras)
        except OperationMissing:
            return False
        except BackendRefused as error:
            # By the path that takes less the same is a refusal of its own.
            return not (extras and error.status is Status.NOT_FOUND)
        return True
