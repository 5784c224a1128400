"""A directory of plain records with random edits, and the expected state of the backend."""

import json
from pathlib import Path
from random import Random
from typing import Any

from tests.worlds.backend import Contents

_PEOPLE = tuple(f"person-{number}" for number in range(8))
_ORGANIZATIONS = ("acme", "bravo")
_TYPES = (None, None, "public", "restricted", "organizationPrivate")

FOREIGN = "theirs"
"""What others put into the backend begins with it."""


class Directory:
    """Records by what identifies them. Removals are as frequent as additions: they are what must not be lost."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.organizations: dict[str, str] = {"acme": "Acme"}
        self.members: dict[tuple[str, str], str] = {}
        self.folders: dict[tuple[str, str], tuple[str | None, str | None]] = {}
        """→ parent and own access type"""
        self.documents: dict[tuple[str, str], tuple[str | None, str | None]] = {}
        self.titles: dict[tuple[str, str], str] = {}
        """Of documents, also of those that are gone."""
        self.groups: dict[tuple[str, str], set[str]] = {}
        self.grants: dict[tuple[str, str, str, str], str] = {}
        """(organization, kind, container, user or group:name) → role"""
        self.names = dict.fromkeys(_PEOPLE, "Name")
        self.edit(60)

    def edit(self, number: int) -> None:
        """So many changes."""
        for _ in range(number):
            change = self.random.choice(
                (self._organization, self._member, self._member, self._folder, self._document, self._document,
                 self._group, self._group, self._grant, self._grant, self._name)
            )  # fmt: skip
            change()
            self._tidy()

    def _goes(self, some: Any) -> bool:
        """Whether something goes, and did; otherwise something comes or changes."""
        if some and self.random.random() < 0.4:
            gone = self.random.choice(sorted(some, key=str))
            if isinstance(some, dict):
                del some[gone]
            else:
                some.remove(gone)
            return True
        return False

    def _somewhere(self, some: Any = None) -> Any:
        return self.random.choice(sorted(self.organizations if some is None else some))

    def _organization(self) -> None:
        if "bravo" in self.organizations and self.random.random() < 0.3:
            del self.organizations["bravo"]
        else:
            self.organizations[self.random.choice(_ORGANIZATIONS)] = self.random.choice(("One", "Two"))

    def _member(self) -> None:
        if not self._goes(self.members):
            self.members[self._somewhere(), self.random.choice(_PEOPLE)] = self.random.choice(("viewer", "editor"))

    def _folder(self) -> None:
        if self._goes(self.folders):
            return
        where, number = self._somewhere(), self.random.randrange(5)
        # A folder lies in one with a smaller number, or at the top: there are no cycles.
        above = f"folder-{self.random.randrange(number)}" if number and self.random.random() < 0.5 else None
        above = above if (where, above) in self.folders else None
        self.folders[where, f"folder-{number}"] = (above, self.random.choice(_TYPES))

    def _document(self) -> None:
        if self._goes(self.documents):
            return
        where = self._somewhere()
        folders = [name for place, name in self.folders if place == where]
        folder = self.random.choice([*sorted(folders), None])
        key = where, f"document-{self.random.randrange(9)}"
        self.documents[key] = (folder, self.random.choice(_TYPES))
        self.titles[key] = self.random.choice(("Plain", "Fancy"))

    def _group(self) -> None:
        if self.groups and self.random.random() < 0.5:
            self._goes(self.groups[self._somewhere(self.groups)])
        elif not self._goes(self.groups):
            key = self._somewhere(), f"group-{self.random.randrange(3)}"
            self.groups.setdefault(key, set()).update(self.random.sample(_PEOPLE, 3))

    def _grant(self) -> None:
        if self._goes(self.grants):
            return
        places = [(where, "folder", name) for where, name in self.folders]
        places += [(where, "document", name) for where, name in self.documents]
        if places:
            where, kind, container = self._somewhere(places)
            holders = [*_PEOPLE, *sorted(f"group:{name}" for place, name in self.groups if place == where)]
            self.grants[where, kind, container, self.random.choice(holders)] = self.random.choice(("viewer", "editor"))

    def _name(self) -> None:
        self.names[self.random.choice(_PEOPLE)] = self.random.choice(("Name", "Another name"))

    def _tidy(self) -> None:
        """What refers to something that is gone goes as well."""
        everything: tuple[dict[Any, Any], ...] = (
            self.members,
            self.folders,
            self.documents,
            self.groups,
            self.grants,
        )
        for some in everything:
            for key in [key for key in some if key[0] not in self.organizations]:
                del some[key]
        for some in (self.folders, self.documents):
            for key, (above, own) in some.items():
                if above is not None and (key[0], above) not in self.folders:
                    some[key] = (None, own)
        for where, kind, container, holder in list(self.grants):
            there = self.folders if kind == "folder" else self.documents
            group = holder.removeprefix("group:") if holder.startswith("group:") else None
            if (where, container) not in there or (group is not None and (where, group) not in self.groups):
                del self.grants[where, kind, container, holder]

    def write(self, path: Path) -> None:
        """As a file of JSON Lines, in the form that Usher reads."""
        records: list[dict[str, Any]] = [
            {"kind": "organization", "organizationId": key, "organizationName": name}
            for key, name in self.organizations.items()
        ]
        records += [
            {"kind": "user", "userId": one, "name": name, "email": f"{one}@x.example"}
            for one, name in self.names.items()
        ]
        records += [
            {"kind": "membership", "organizationId": where, "userId": one, "accessRole": role}
            for (where, one), role in self.members.items()
        ]
        for kind, some, place in (
            ("folder", self.folders, "parentFolderId"),
            ("document", self.documents, "folderId"),
        ):
            records += [
                {"kind": kind, "organizationId": where, f"{kind}Id": name}
                | {f"{kind}Name": self.titles[where, name] if kind == "document" else name.upper()}
                | ({place: above} if above else {})
                | ({"accessType": own} if own else {})
                for (where, name), (above, own) in some.items()
            ]
        for (where, name), members in self.groups.items():
            group = {"organizationId": where, "organizationUserGroupId": name}
            records.append({"kind": "group", **group, "groupName": name})
            records += [{"kind": "groupMember", **group, "userId": one} for one in sorted(members)]
        for (where, kind, container, holder), role in self.grants.items():
            who = (
                {"organizationUserGroupId": holder.removeprefix("group:")}
                if holder.startswith("group:")
                else {"userId": holder}
            )
            records.append(
                {"kind": "grant", "organizationId": where, f"{kind}Id": container, "accessRole": role, **who}
            )
        path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")

    def wanted(self) -> dict[str, Any]:
        """What a backend should hold, in the form of ``held``."""
        people: dict[Any, dict[str, tuple[str, str]]] = {}
        for (where, one), role in self.members.items():
            people.setdefault((where, "organization", ""), {})[one] = (self.names[one], role)
        for own in (False, True):  # what somebody was granted by name counts before what a group was
            for (where, kind, container, holder), role in self.grants.items():
                if own == holder.startswith("group:"):
                    continue
                holders = {holder} if own else self.groups[where, holder.removeprefix("group:")]
                there = people.setdefault((where, kind, container), {})
                for one in holders:
                    best = "editor" if not own and there.get(one, ("", ""))[1] == "editor" else role
                    there[one] = (self.names[one], best)
        return {
            "organizations": dict(self.organizations),
            "folders": {
                key: (key[1].upper(), above or "", own or (None if above else "organizationPrivate"))
                for key, (above, own) in self.folders.items()
            },
            "documents": {
                key: (self.titles[key], above or "", own or self._type_of_folder(key[0], above))
                for key, (above, own) in self.documents.items()
            },
            "groups": {key: members for key, members in self.groups.items() if members},
            "people": {key: some for key, some in people.items() if some},
        }

    def _type_of_folder(self, where: str, folder: str | None) -> str:
        while folder is not None:
            folder, own = self.folders[where, folder]
            if own is not None:
                return own
        return "organizationPrivate"


def held(contents: Contents, *, foreign: bool = False) -> dict[str, Any]:
    """What a backend holds of ours, or of others, in plain terms. Empty groups stay behind: they cannot be deleted."""

    def of(key: Any) -> bool:
        parts = (key,) if isinstance(key, str) else key
        return any(part.startswith(FOREIGN) for part in parts) == foreign

    def type_of(where: str, it: dict[str, Any]) -> str:
        while it["type"] is None and it["in"]:
            it = contents.folders[where, it["in"]]
        return it["type"] or "organizationPrivate"

    people = {
        key: {one: (it.get("name"), it["accessRole"]) for one, it in some.items() if of((*key, one))}
        for key, some in contents.people.items()
    }
    return {
        "organizations": {key: it.get("organizationName") for key, it in contents.organizations.items() if of(key)},
        "folders": {key: (it["name"], it["in"], it["type"]) for key, it in contents.folders.items() if of(key)},
        "documents": {
            key: (it["name"], it["in"], type_of(key[0], it)) for key, it in contents.documents.items() if of(key)
        },
        "groups": {key: members for key, members in contents.groups.items() if of(key) and members},
        "people": {key: some for key, some in people.items() if some},
    }
