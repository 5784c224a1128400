"""The port through which a batch's request travels, and what is known when "not found" comes back.

The port through which batches are sent (``BackendPort``), and the client behind it.
"""

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
    """The backend as far as writing to it goes. Every method may raise ``ClientError``."""

    def write(self, operation: str, request: Request, *, without_roles: bool) -> Mapping[str, ItemAnswer] | None:
        """What became of each item, by id, and whatever else the answer says of items; None where it says nothing.

        ``without_roles``: by the path that takes neither roles nor access types, where there are two.
        """
        ...

    def has_form_without_roles(self, operation: str) -> bool:
        """Whether there are two paths."""
        ...

    def organization_exists(self, organization_id: str) -> bool:
        """Whether the backend knows the organization."""
        ...

    def has_operation(self, operation: str, organization_id: str) -> bool:
        """Whether a call that changes nothing is answered by anything but "not found"."""
        ...


class ClientPort:
    """The client as a ``BackendPort``."""

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
        return any(one.id == organization_id for one in self._client.call(contract.GET_ORGANIZATIONS, request).data)

    def has_operation(self, operation: str, organization_id: str, *, with_roles: bool = False) -> bool:
        """``with_roles``: of the two paths the one that takes roles and access types."""
        contracted = contract.by_name(operation)
        if contracted.probed_by is not None:
            contracted = contract.by_name(contracted.probed_by)
        request = contracted.empty_request(organization_id)
        try:
            self._client.call(contracted, request, twin=with_roles)
        except OperationMissing:
            return False
        except BackendRefused as error:
            # By the path that takes less the same is a refusal of its own.
            return not (with_roles and error.status is Status.NOT_FOUND)
        return True
