"""The port through which batches are sent, and its implementation by the client."""

from collections.abc import Mapping
from typing import Protocol

from app.client.client import BackendClient
from app.client.errors import BackendRefused, OperationMissing
from app.client.items import ItemAnswer, item_results
from app.contract import operations as contract
from app.contract.base import Request
from app.contract.errors import Status
from app.contract.organizations import GetOrganizationsRequest


class BackendPort(Protocol):
    """The backend, for writing. Every method may raise ``ClientError``."""

    def write(self, operation: str, request: Request, *, without_roles: bool) -> Mapping[str, ItemAnswer] | None:
        """Sends a request and returns the answers of items, by id; None if the answer mentions none.

        ``without_roles``: uses the path without roles and access types, if the operation has two.
        """
        ...

    def has_form_without_roles(self, operation: str) -> bool:
        """Whether the operation has a second path without roles and access types."""
        ...

    def organization_exists(self, organization_id: str) -> bool: ...

    def has_operation(self, operation: str, organization_id: str, *, with_roles: bool = False) -> bool:
        """Whether the backend has the operation. Sends a call that changes nothing.

        ``with_roles``: probes the path with roles and access types.
        """
        ...


class ClientPort:
    """Implements ``BackendPort``."""

    def __init__(self, client: BackendClient) -> None:
        self._client = client

    def write(self, operation: str, request: Request, *, without_roles: bool) -> Mapping[str, ItemAnswer] | None:
        contracted = contract.by_name(operation)
        answer = self._client.call(contracted, request, twin=not without_roles and contracted.roles_under_twin)
        items = answer.data if contracted.result is contract.ITEMS else answer.items
        if not isinstance(items, Mapping):
            return None
        return item_results(items, items, maybe_applied_earlier=answer.maybe_applied_earlier)

    def has_form_without_roles(self, operation: str) -> bool:
        return contract.by_name(operation).roles_under_twin

    def organization_exists(self, organization_id: str) -> bool:
        request = GetOrganizationsRequest(organization_ids=[organization_id])
        return any(found.id == organization_id for found in self._client.call(contract.GET_ORGANIZATIONS, request).data)

    def has_operation(self, operation: str, organization_id: str, *, with_roles: bool = False) -> bool:
        contracted = contract.by_name(operation)
        if contracted.probed_by is not None:
            contracted = contract.by_name(contracted.probed_by)
        request = contracted.empty_request(organization_id)
        try:
            self._client.call(contracted, request, twin=with_roles)
        except OperationMissing:
            return False
        except BackendRefused as error:
            # On the path without roles, "not found" is about the organization.
            return not (with_roles and error.status is Status.NOT_FOUND)
        return True
