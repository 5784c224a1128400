"""Generates a deterministic company of any size as a directory file."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

FOLDER_FAN_OUT = 10
GROUPS_PER_ORGANIZATION = 50
GROUP_GRANT_SHARE = 0.002
"""Grants to groups become one entry per member in the backend, so a few of them weigh as much as many others."""
FOLDER_GRANT_SHARE = 0.1


@dataclass(frozen=True)
class Company:
    """The size of the company, over all organizations."""

    users: int
    folders: int
    documents: int
    grants: int
    organizations: int = 10
    seed: int = 1
    with_aliases: bool = False
    """Whether the address of each person is an alias, by which records may name them."""

    def records(self) -> Iterator[dict[str, object]]:
        """All records in the format of the directory file."""
        chance = random.Random(self.seed)
        for number in range(self.organizations):
            yield {
                "kind": "organization",
                "organizationId": f"org-{number}",
                "organizationName": f"Organization {number}",
            }
        for number in range(self.users):
            user = f"user-{number}"
            email = f"{user}@company.example"
            aliases = {"aliases": [email]} if self.with_aliases else {}
            yield {"kind": "user", "userId": user, "name": f"User Number{number}", "email": email, **aliases}
            yield {
                "kind": "membership",
                "organizationId": self.organization_of(number),
                "userId": user,
                "accessRole": "viewer" if number % 3 else "editor",
            }
        yield from self._groups()
        yield from self._folders()
        for number in range(self.documents):
            document: dict[str, object] = {
                "kind": "document",
                "organizationId": self.organization_of(number),
                "documentId": f"document-{number}",
                "documentName": f"Document {number}",
            }
            if self.folders and number % 20:
                document["folderId"] = f"folder-{self._sibling(number, self.folders)}"
            if number % 7 == 0:
                document["accessType"] = "restricted"
            yield document
        yield from self._grants(chance)

    def organization_of(self, number: int) -> str:
        """The organization that user, folder, document or group ``number`` belongs to."""
        return f"org-{number % self.organizations}"

    def write(self, path: Path) -> Path:
        """Writes the company as JSON Lines."""
        with path.open("wb", buffering=1 << 20) as file:
            for record in self.records():
                file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
        return path

    def _sibling(self, number: int, count: int) -> int:
        """One of ``count`` items in the same organization, evenly distributed."""
        per_organization = max(1, count // self.organizations)
        return (
            number * 7919 // self.organizations
        ) % per_organization * self.organizations + number % self.organizations

    def _groups(self) -> Iterator[dict[str, object]]:
        for number in range(self.organizations * GROUPS_PER_ORGANIZATION):
            organization, group = self.organization_of(number), f"group-{number}"
            yield {
                "kind": "group",
                "organizationId": organization,
                "organizationUserGroupId": group,
                "groupName": f"Group {number}",
            }
            if number >= 4 * self.organizations:
                # Every fourth group of an organization holds the next ones: three levels deep.
                parent = number // self.organizations // 4 * self.organizations + number % self.organizations
                yield {
                    "kind": "groupMember",
                    "organizationId": organization,
                    "organizationUserGroupId": f"group-{parent}",
                    "memberGroupId": group,
                }
        for number in range(self.users):
            of_group = self._sibling(number, self.organizations * GROUPS_PER_ORGANIZATION)
            yield {
                "kind": "groupMember",
                "organizationId": self.organization_of(number),
                "organizationUserGroupId": f"group-{of_group}",
                "userId": f"user-{number}",
            }

    def _folders(self) -> Iterator[dict[str, object]]:
        for number in range(self.folders):
            folder: dict[str, object] = {
                "kind": "folder",
                "organizationId": self.organization_of(number),
                "folderId": f"folder-{number}",
                "folderName": f"Folder {number}",
            }
            place = number // self.organizations
            if place >= FOLDER_FAN_OUT:
                folder["parentFolderId"] = (
                    f"folder-{place // FOLDER_FAN_OUT * self.organizations + number % self.organizations}"
                )
            if place % 9 == 0:
                folder["accessType"] = "restricted"
            yield folder

    def _grants(self, chance: random.Random) -> Iterator[dict[str, object]]:
        for number in range(self.grants):
            grant: dict[str, object] = {
                "kind": "grant",
                "organizationId": self.organization_of(number),
                "accessRole": "viewer" if number % 2 else "editor",
            }
            if chance.random() < GROUP_GRANT_SHARE:
                group = self._sibling(chance.randrange(1 << 30) * self.organizations + number, 500)
                grant["organizationUserGroupId"] = f"group-{group}"
            else:
                grant["userId"] = f"user-{self._pick(chance, number, self.users)}"
            if self.folders and chance.random() < FOLDER_GRANT_SHARE:
                grant["folderId"] = f"folder-{self._pick(chance, number, self.folders)}"
            else:
                grant["documentId"] = f"document-{self._pick(chance, number, self.documents)}"
            yield grant

    def _pick(self, chance: random.Random, number: int, count: int) -> int:
        """A random one of ``count`` items in the organization of ``number``."""
        per_organization = max(1, count // self.organizations)
        return chance.randrange(per_organization) * self.organizations + number % self.organizations
