"""Reads items from the backend, by page, for a verify.

If the backend lacks the operation, the kind stays unread.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from app.client.client import BackendClient
from app.client.errors import BackendRefused, OperationMissing
from app.contract import operations as contract
from app.contract.documents import GetDocumentsRequest
from app.contract.errors import Status
from app.contract.folders import GetFoldersRequest
from app.contract.limits import IDS_PER_READ
from app.contract.organizations import GetOrganizationsRequest
from app.contract.users import GetUsersRequest, User
from app.sync.apply import observations
from app.sync.apply.capabilities import Capabilities
from app.sync.ledger.items import Kind
from app.sync.ledger.observed import Observed

ElementT = TypeVar("ElementT")

_PAGE_SIZE = 1000


@dataclass(frozen=True, slots=True)
class Container:
    """A container whose users are read together."""

    kind: Kind
    """The kind of the users in it."""
    organization_id: str
    container_id: str = ""


class BackendReads:
    """The reads of one verify. ``before_call`` may raise to end them."""

    def __init__(self, client: BackendClient, capabilities: Capabilities, *, before_call: Callable[[], None]) -> None:
        self._client = client
        self._capabilities = capabilities
        self._before_call = before_call
        self.unread: set[Kind] = {Kind.GROUP}
        """Kinds that the backend does not return."""

    def organizations(self, organization_ids: Iterable[str]) -> Iterator[Observed]:
        """Organizations by id, or all of them."""
        requests = [GetOrganizationsRequest(organization_ids=ids) for ids in in_parts(organization_ids, IDS_PER_READ)]
        for request in requests or [GetOrganizationsRequest(page_size=_PAGE_SIZE)]:
            self._before_call()
            for answer in self._client.pages(contract.GET_ORGANIZATIONS, request):
                self._before_call()
                yield from map(observations.organization, answer.data)

    def folders(self, organization_id: str) -> Iterator[Observed]:
        if not self._can_read("get_folders", Kind.FOLDER):
            return
        self._before_call()
        try:
            answer = self._client.call(contract.GET_FOLDERS, GetFoldersRequest(organization_id=organization_id))
        except OperationMissing:
            # The organization has just been read, so the operation is missing.
            self._note_unsupported("get_folders", Kind.FOLDER)
            return
        yield from observations.folders(organization_id, answer.data)

    def documents(self, organization_id: str) -> Iterator[Observed]:
        if not self._can_read("get_documents", Kind.DOCUMENT):
            return
        request = GetDocumentsRequest(organization_id=organization_id, page_size=_PAGE_SIZE)
        self._before_call()
        try:
            for answer in self._client.pages(contract.GET_DOCUMENTS, request):
                self._before_call()
                for seen in answer.data:
                    yield observations.document(organization_id, seen)
        except OperationMissing:
            self._note_unsupported("get_documents", Kind.DOCUMENT)

    def document_users(self, organization_id: str, user_ids: list[str] | None) -> Iterator[Observed]:
        """Users of all documents of an organization. ``user_ids``: None for all users."""
        request = GetUsersRequest(
            organization_id=organization_id,
            all_documents=True,
            group_by_document_id=True,
            user_ids=user_ids,
            page_size=_PAGE_SIZE,
        )
        for data in self._user_pages(request):
            if isinstance(data, dict):
                for document_id, users in data.items():
                    for user in users:
                        yield observations.user(Kind.DOCUMENT_USER, organization_id, document_id, user)

    def users(self, container: Container, user_ids: list[str] | None) -> Iterator[Observed]:
        """Users of a container. ``user_ids``: None for all users."""
        request = GetUsersRequest(
            organization_id=container.organization_id,
            folder_id=container.container_id if container.kind is Kind.FOLDER_USER else None,
            organization_user_group_ids=[container.container_id] if container.kind is Kind.GROUP_MEMBER else None,
            user_ids=user_ids,
            page_size=_PAGE_SIZE,
        )
        for data in self._user_pages(request):
            if isinstance(data, dict):
                continue
            for user in data:
                if container.kind is Kind.GROUP_MEMBER:
                    yield observations.member(container.organization_id, container.container_id, user)
                else:
                    yield observations.user(container.kind, container.organization_id, container.container_id, user)

    def _user_pages(self, request: GetUsersRequest) -> Iterator[list[User] | dict[str, list[User]]]:
        """Pages of users. A container that does not exist has none."""
        self._before_call()
        try:
            for answer in self._client.pages(contract.GET_USERS, request):
                self._before_call()
                yield answer.data
        except BackendRefused as error:
            if error.status is not Status.NOT_FOUND:
                raise

    def _can_read(self, operation: str, kind: Kind) -> bool:
        if self._capabilities.is_unsupported(operation):
            self.unread.add(kind)
        return kind not in self.unread

    def _note_unsupported(self, operation: str, kind: Kind) -> None:
        self._capabilities.mark_unsupported(operation)
        self.unread.add(kind)


def in_parts(elements: Iterable[ElementT], size: int) -> Iterator[list[ElementT]]:
    """Splits an iterable into lists of ``size`` elements; the last may be shorter."""
    rest = iter(elements)
    while part := list(islice(rest, size)):
        yield part
