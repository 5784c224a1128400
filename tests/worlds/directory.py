"""A source of records that a test adds and removes."""

from collections.abc import Iterator
from typing import Any

from app.access.records import (
    AccessRole,
    AccessType,
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Key,
    Membership,
    Organization,
    Record,
    User,
)
from app.directory.source import EVERYTHING, End, Found, ReadRequest, Verdict


class Directory:
    """A source of records that a test adds and removes."""

    name = "test"

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self.verdict = Verdict.COMPLETE

    def read(self, request: ReadRequest = EVERYTHING) -> Iterator[Any]:
        for number, record in enumerate(list(self.records.values())):
            yield Found(record, f"{self.name}:{number}")
        yield End(self.verdict, "" if self.verdict is Verdict.COMPLETE else "told so")

    def add(self, *records: Record) -> None:
        for record in records:
            self.records[record.key] = record

    def remove(self, *key: str) -> None:
        """Removes the records whose key has this prefix."""
        for known in [known for known in self.records if known[: len(key)] == key]:
            del self.records[known]

    def organization(self, organization_id: str, **fields: Any) -> None:
        self.add(Organization(**{"organization_id": organization_id, "organization_name": organization_id} | fields))

    def user(self, user_id: str, **fields: Any) -> None:
        self.add(User(**{"user_id": user_id, "name": user_id.title(), "email": f"{user_id}@acme.example"} | fields))

    def member(self, user_id: str, organization_id: str = "acme", role: str = "editor") -> None:
        self.add(Membership(organization_id=organization_id, user_id=user_id, access_role=AccessRole(role)))

    def folder(self, folder_id: str, parent: str | None = None, access: str | None = None, **fields: Any) -> None:
        self.add(
            Folder(
                **{
                    "organization_id": "acme",
                    "folder_id": folder_id,
                    "folder_name": folder_id.title(),
                    "parent_folder_id": parent,
                    "access_type": AccessType(access) if access else None,
                }
                | fields
            )
        )

    def document(self, document_id: str, folder: str | None = None, access: str | None = None, **fields: Any) -> None:
        self.add(
            Document(
                **{
                    "organization_id": "acme",
                    "document_id": document_id,
                    "document_name": document_id.title(),
                    "folder_id": folder,
                    "access_type": AccessType(access) if access else None,
                }
                | fields
            )
        )

    def group(self, group_id: str, users: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> None:
        self.add(Group(organization_id="acme", organization_user_group_id=group_id, group_name=group_id.title()))
        for user_id in users:
            self.add(GroupMember(organization_id="acme", organization_user_group_id=group_id, user_id=user_id))
        for inner in groups:
            self.add(GroupMember(organization_id="acme", organization_user_group_id=group_id, member_group_id=inner))

    def grant(self, role: str = "editor", **fields: Any) -> None:
        renamed = {
            {"folder": "folder_id", "document": "document_id", "user": "user_id"}.get(k, k): v
            for k, v in fields.items()
        }
        if "group" in renamed:
            renamed["organization_user_group_id"] = renamed.pop("group")
        self.add(Grant(organization_id="acme", access_role=AccessRole(role), **renamed))


def small_company(directory: Directory) -> None:
    """Two people, a folder tree, documents of each access type, nested groups, grants of each form."""
    directory.organization("acme")
    for user_id in ("ada", "bob", "cleo", "dan"):
        directory.user(user_id)
    directory.member("ada")
    directory.member("bob", role="viewer")
    directory.member("dan")
    directory.folder("specs", access="restricted")
    directory.folder("drafts", parent="specs")
    directory.folder("archive")
    directory.document("handbook")
    directory.document("roadmap", folder="drafts")
    directory.document("pressrelease", access="public")
    directory.document("salaries", folder="specs", access="restricted")
    directory.group("core", users=("dan",))
    directory.group("eng", users=("bob",), groups=("core",))
    directory.grant(folder="specs", group="eng")
    directory.grant(folder="drafts", user="bob", role="viewer")
    directory.grant(document="roadmap", user="cleo")
