"""Converts the backend's answers to reads into observed items, the opposite of ``app.sync.apply.requests``."""

import json
from collections.abc import Iterable, Iterator

from app.contract.base import WireModel
from app.contract.documents import Document
from app.contract.folders import ROOT_FOLDER_ID, Folder
from app.contract.organizations import Organization
from app.contract.users import User
from app.sync.ledger.items import Kind
from app.sync.ledger.observed import Observed

_IDS = frozenset({"id", "organizationId", "folderId", "documentId", "userId", "organizationUserGroupId", "groupId"})
"""Fields of the key, which are not compared."""


def organization(seen: Organization) -> Observed:
    known = "" if seen.disabled is None else "disabled"
    return Observed(
        kind=Kind.ORGANIZATION.value,
        organization_id=seen.id,
        item_id=seen.id,
        disabled=bool(seen.disabled),
        payload=_payload(seen),
        known=known,
    )


def folders(organization_id: str, seen: Iterable[Folder], parent_id: str = "") -> Iterator[Observed]:
    """Folders with their subfolders, whether the backend nests them or returns a flat list."""
    waiting = [(folder, parent_id) for folder in seen]
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


def document(organization_id: str, seen: Document) -> Observed:
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


def user(kind: Kind, organization_id: str, container_id: str, seen: User) -> Observed:
    return Observed(
        kind=kind.value,
        organization_id=organization_id,
        container_id=container_id,
        item_id=seen.user_id,
        access_role=seen.access_role or "",
        payload=_payload(seen),
        known="role" if seen.access_role else "",
    )


def member(organization_id: str, group_id: str, seen: User) -> Observed:
    """A group member, which has no attributes."""
    return Observed(
        kind=Kind.GROUP_MEMBER.value, organization_id=organization_id, container_id=group_id, item_id=seen.user_id
    )


def same_fields(observed_payload: str, desired_payload: str) -> bool:
    """Whether every field that Usher sends has the same value in the backend.

    Further fields are ignored. So are fields that the backend does not return: they would be sent after every verify.
    """
    observed = json.loads(observed_payload)
    desired = json.loads(desired_payload)
    return all(observed[name] == value for name, value in desired.items() if name not in _IDS and name in observed)


def _own_type(access_type: str | None, inherits: bool | None) -> tuple[str, str]:
    """The own access type, and the word for ``Observed.known``."""
    if inherits is None:
        return access_type or "", "type" if access_type else ""
    return ("" if inherits else access_type or ""), "access"


def _payload(seen: WireModel) -> str:
    fields = seen.to_wire()
    fields.pop("subFolders", None)
    return json.dumps(fields, ensure_ascii=False)
