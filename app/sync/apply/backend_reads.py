"""Reads items from the backend, by page, for a verify, and converts them into observed items.

If the backend lacks the operation, the kind stays unread. The opposite direction is in ``app.sync.apply.requests``,
which converts items into calls.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from app.client.client import BackendClient
from app.client.errors import BackendRefused, OperationMissing
from app.contract import operations as contract
from app.contract.base import WireModel
from app.contract.documents import Document, GetDocumentsRequest
from app.contract.errors import Status
from app.contract.folders import ROOT_FOLDER_ID, Folder, GetFoldersRequest
from app.contract.limits import IDS_PER_READ
from app.contract.organizations import GetOrganizationsRequest, Organization
from app.contract.users import GetUsersRequest, User
from app.sync.apply.batch import in_parts
from app.sync.apply.capabilities import Capabilities
from app.sync.ledger.items import Kind
from app.sync.ledger.observed import Observed

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

    def lacks(self, operation: str) -> bool:
        """Whether an operation must not be called."""
        return self._capabilities.is_unsupported(operation)

    def organizations(self, organization_ids: Iterable[str] | None) -> Iterator[Observed]:
        """Organizations by id. ``organization_ids``: None for all organizations."""
        requests = (
            [GetOrganizationsRequest(page_size=_PAGE_SIZE)]
            if organization_ids is None
            else [GetOrganizationsRequest(organization_ids=ids) for ids in in_parts(organization_ids, IDS_PER_READ)]
        )
        for request in requests:
            self._before_call()
            for answer in self._client.pages(contract.GET_ORGANIZATIONS, request):
                self._before_call()
                yield from map(_organization, answer.data)

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
        yield from _folders(organization_id, answer.data)

    def documents(self, organization_id: str) -> Iterator[Observed]:
        if not self._can_read("get_documents", Kind.DOCUMENT):
            return
        request = GetDocumentsRequest(organization_id=organization_id, page_size=_PAGE_SIZE)
        self._before_call()
        try:
            for answer in self._client.pages(contract.GET_DOCUMENTS, request):
                self._before_call()
                for seen in answer.data:
                    yield _document(organization_id, seen)
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
                        yield _user(Kind.DOCUMENT_USER, organization_id, document_id, user)

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
                    yield _member(container.organization_id, container.container_id, user)
                else:
                    yield _user(container.kind, container.organization_id, container.container_id, user)

    def folders_below(self, organization_id: str, folder_id: str) -> list[Observed]:
        """The folders below a folder, at any depth. None if the backend cannot return them, or has no such folder."""
        self._before_call()
        request = GetFoldersRequest(organization_id=organization_id, folder_id=folder_id)
        found: list[Observed] = []
        with _missing_is_empty():
            found += _folders(organization_id, self._client.call(contract.GET_FOLDERS, request).data)
        return found

    def documents_in(self, organization_id: str, folder_id: str) -> list[str]:
        """The ids of the documents in a folder, without those in its subfolders. None as in ``folders_below``."""
        request = GetDocumentsRequest(organization_id=organization_id, folder_id=folder_id, page_size=_PAGE_SIZE)
        ids: list[str] = []
        with _missing_is_empty():
            for answer in self._client.pages(contract.GET_DOCUMENTS, request):
                self._before_call()
                ids += [document.id for document in answer.data]
        return ids

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
        self._capabilities.missing.add(operation)
        self.unread.add(kind)


@contextmanager
def _missing_is_empty() -> Iterator[None]:
    """Ends the block if the backend lacks the operation or the object."""
    try:
        yield
    except OperationMissing:
        return
    except BackendRefused as error:
        if error.status is not Status.NOT_FOUND:
            raise


def _organization(seen: Organization) -> Observed:
    return Observed(
        kind=Kind.ORGANIZATION.value,
        organization_id=seen.id,
        item_id=seen.id,
        disabled=bool(seen.disabled),
        payload=_payload(seen),
        known="" if seen.disabled is None else "disabled",
    )


def _folders(organization_id: str, seen: Iterable[Folder]) -> Iterator[Observed]:
    """Folders with their subfolders, whether the backend nests them or returns a flat list."""
    waiting = [(folder, "") for folder in seen]
    while waiting:
        folder, above = waiting.pop()
        parent = above if folder.parent_folder_id is None else folder.parent_folder_id
        waiting.extend((inner, folder.folder_id) for inner in folder.sub_folders or ())
        access_type, known = _own_type(folder.access_type, folder.inherit_access_from_parent)
        yield Observed(
            kind=Kind.FOLDER.value,
            organization_id=organization_id,
            item_id=folder.folder_id,
            parent_id="" if parent == ROOT_FOLDER_ID else parent,
            access_type=access_type,
            payload=_payload(folder),
            known=f"parent {known}",
        )


def _document(organization_id: str, seen: Document) -> Observed:
    """A document. The contract does not promise its folder, but a backend may return it."""
    further = seen.unknown_fields()
    folder_id = further.get("folderId")
    inherits = further.get("inheritAccessFromParent")
    access_type, known = _own_type(seen.access_type, inherits if isinstance(inherits, bool) else None)
    shows_folder = isinstance(folder_id, str)
    return Observed(
        kind=Kind.DOCUMENT.value,
        organization_id=organization_id,
        item_id=seen.id,
        parent_id=str(folder_id) if shows_folder and folder_id != ROOT_FOLDER_ID else "",
        access_type=access_type,
        payload=_payload(seen),
        known=f"parent {known}" if shows_folder else known,
    )


def _user(kind: Kind, organization_id: str, container_id: str, seen: User) -> Observed:
    return Observed(
        kind=kind.value,
        organization_id=organization_id,
        container_id=container_id,
        item_id=seen.user_id,
        access_role=seen.access_role or "",
        payload=_payload(seen),
        known="role" if seen.access_role else "",
    )


def _member(organization_id: str, group_id: str, seen: User) -> Observed:
    """A group member, which has no attributes."""
    return Observed(
        kind=Kind.GROUP_MEMBER.value, organization_id=organization_id, container_id=group_id, item_id=seen.user_id
    )


def _own_type(access_type: str | None, inherits: bool | None) -> tuple[str, str]:
    """The own access type (empty: none), and the word for ``Observed.known``."""
    if inherits is None:
        return access_type or "", "type" if access_type else ""
    return ("" if inherits else access_type or ""), "access"


def _payload(seen: WireModel) -> str:
    fields = seen.to_wire()
    fields.pop("subFolders", None)
    return json.dumps(fields, ensure_ascii=False)
