"""Small random directories, with references to missing records, and random permission checks."""

import random
from datetime import UTC, datetime, timedelta

from app.access.decision.decide import DecisionPolicy, PlainQuestion, ResourceType
from app.access.records import (
    AccessRole,
    AccessType,
    ContextGrant,
    Document,
    Folder,
    Grant,
    Group,
    GroupMember,
    Membership,
    Organization,
    Record,
    User,
)

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
ORGANIZATIONS = ["acme", "zeta"]
USERS = ["ada", "bob", 'o"\\k', "g1"]
GROUPS = ["g1", "g2", "g3", "g4"]
FOLDERS = ["f1", "f2", "f3", "f4", "f5", "f6"]
DOCUMENTS = ["d1", "d2", "d3", "f1"]
FIELDS = ["page", "team"]
VALUES = ["1", "2", "*"]


class Company:
    """A random directory with a bias to interesting cases, and permission checks on it.

    It is generated from a seed: Hypothesis' own strategies mostly generate empty directories, where every check is
    denied.
    """

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)
        self.folders_tangled = self.chance(0.2)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def maybe(self, ids: list[str], probability: float) -> str | None:
        return self.random.choice(ids) if self.chance(probability) else None

    def organization(self) -> str:
        return "acme" if self.chance(0.9) else "zeta"

    def end(self) -> datetime | None:
        return NOW + timedelta(minutes=self.random.randint(-2, 6)) if self.chance(0.5) else None

    def role(self) -> AccessRole:
        return self.random.choice(list(AccessRole))

    def access_type(self) -> AccessType:
        return self.random.choice(list(AccessType))

    def own_type(self) -> AccessType | None:
        return self.access_type() if self.chance(0.2) else None

    def holder(self) -> dict[str, str]:
        if self.chance(0.5):
            return {"user_id": self.random.choice(USERS)}
        return {"organization_user_group_id": self.random.choice(GROUPS)}

    def records(self) -> list[Record]:
        lot = self.random
        records: list[Record] = [
            Organization(
                organization_id=name,
                organization_name="",
                access_type=self.access_type(),
                disabled=self.chance(0.04),
            )
            for name in ORGANIZATIONS
            if self.chance(0.97)
        ]
        records += [
            User(user_id=name, name="", email="", disabled=self.chance(0.04)) for name in USERS if self.chance(0.97)
        ]
        records += [
            Membership(
                organization_id=self.organization(),
                user_id=lot.choice(USERS),
                access_role=self.role(),
                expires_at=self.end(),
            )
            for _ in range(lot.randint(0, 3))
        ]
        records += [
            Group(organization_id=organization, organization_user_group_id=name, group_name="")
            for organization in ORGANIZATIONS
            for name in GROUPS
            if self.chance(0.85)
        ]
        records += [self.member() for _ in range(lot.randint(0, 8))]
        records += [self.folder(number) for number in range(len(FOLDERS)) if self.chance(0.93)]
        records += [
            Document(
                organization_id=self.organization(),
                document_id=lot.choice(DOCUMENTS),
                document_name="",
                folder_id=self.maybe(FOLDERS, 0.8),
                access_type=self.own_type(),
            )
            for _ in range(lot.randint(2, 8))
        ]
        records += [self.grant() for _ in range(lot.randint(0, 14))]
        records += [self.context_grant() for _ in range(lot.randint(0, 14))]
        return records

    def member(self) -> GroupMember:
        group, of_group = self.random.choice(GROUPS), self.chance(0.5)
        return GroupMember(
            organization_id=self.organization(),
            organization_user_group_id=group,
            user_id=None if of_group else self.random.choice(USERS),
            member_group_id=self.random.choice(GROUPS) if of_group else None,
        )

    def folder(self, number: int) -> Folder:
        above = FOLDERS if self.folders_tangled else FOLDERS[:number]
        return Folder(
            organization_id="acme",
            folder_id=FOLDERS[number],
            folder_name="",
            parent_folder_id=self.maybe(above, 0.8) if above else None,
            access_type=self.own_type(),
        )

    def grant(self) -> Grant:
        place = (
            {"folder_id": self.random.choice(FOLDERS)}
            if self.chance(0.6)
            else {"document_id": self.random.choice(DOCUMENTS)}
        )
        return Grant(
            organization_id=self.organization(),
            **place,
            **self.holder(),
            access_role=self.role(),
            expires_at=self.end(),
        )

    def context_grant(self) -> ContextGrant:
        return ContextGrant(
            organization_id=self.organization(),
            **self.holder(),
            field=self.random.choice(FIELDS),
            value=self.random.choice(VALUES),
            document_id=self.maybe(DOCUMENTS, 0.3),
            expires_at=self.end(),
        )

    def question(self) -> PlainQuestion:
        lot = self.random
        types: list[ResourceType] = ["organization", "folder", "document", "context", "context"]
        resource_type = lot.choice(types)
        ids = {"organization": ["acme", "acme", "zeta"], "folder": FOLDERS}.get(resource_type, DOCUMENTS)
        return PlainQuestion(
            user_id=lot.choice(USERS) if self.chance(0.97) else "nobody",
            type=resource_type,
            resource_id=lot.choice(ids) if self.chance(0.95) else "nothing",
            organization_id=self.organization() if self.chance(0.98) else "nowhere",
            parent_folder_id=self.maybe(FOLDERS, 0.5),
            context={name: lot.choice(["1", "2", "2", "3", "*"]) for name in FIELDS[: lot.choice([0, 1, 1, 1, 2])]},
        )

    def policy(self) -> DecisionPolicy:
        return DecisionPolicy(
            decision_ttl=self.random.choice([0, 0, 90, 600]),
            public_role=self.role(),
            unknown_document=self.random.choice(["deny", "inherit_folder"]),
        )
