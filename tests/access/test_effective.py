"""The effective queries and the desired state against a second evaluation, written straight from the rules.

Records are written into the access model as they are: they may refer to records that do not exist.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.access.effective import ALL_FOLDERS, BrokenReference, cause, find_causes
from app.access.record_tables import KIND_TABLES
from app.access.records import (
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
from app.foundation.database.engine import reading, writing
from app.foundation.database.statements import run
from app.sync.ledger import tables as ledger_tables  # noqa: F401 - plans read its tables
from app.sync.plan.desired import compute_desired
from app.sync.plan.selection import Selection
from app.sync.plan.tables import drop_temporary
from tests.worlds.access_model import StoredDirectory, stored_directory
from tests.worlds.random_directories import NOW, Company

__all__ = ["stored_directory"]

Row = tuple[object, ...]
DesiredKey = tuple[str, str, str, str]

numbers = st.integers(0, 2**32)
fixtures_may_stay = [HealthCheck.function_scoped_fixture]


class Resolver:
    """Resolves references, one lookup at a time."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = {record.key: record for record in records}

    def of(self, kind: type[Any]) -> list[Any]:
        return [record for record in self.records.values() if type(record) is kind]

    def known(self, kind: type[Any], *ids: str) -> Any:
        return self.records.get((kind.kind, *ids))

    def folders(self, organization_id: str, folder_id: str | None) -> list[Any] | BrokenReference:
        """The folder and those above it, nearest first, or what breaks the ancestry."""
        found: list[Any] = []
        while folder_id is not None:
            folder = self.known(Folder, organization_id, folder_id)
            if folder is None:
                return BrokenReference.FOLDER
            if folder in found:
                return BrokenReference.CYCLE
            found.append(folder)
            folder_id = folder.parent_folder_id
        return found

    def cause(self, record: Any) -> BrokenReference | None:
        """Why the record has no effect."""
        return next(self.causes(record), None)

    def causes(self, record: Any) -> Iterator[BrokenReference]:
        if isinstance(record, Organization | User):
            return
        within = record.organization_id
        if not self.known(Organization, within):
            yield BrokenReference.ORGANIZATION
        above = getattr(record, "folder_id", None)
        document_id = None if isinstance(record, Document) else getattr(record, "document_id", None)
        if document_id is not None:
            document = self.known(Document, within, document_id)
            if document is None:
                yield BrokenReference.DOCUMENT
            else:
                above = document.folder_id
        if isinstance(broken := self.folders(within, above), BrokenReference):
            yield broken
        group_id = None if isinstance(record, Group) else getattr(record, "organization_user_group_id", None)
        user_id = getattr(record, "user_id", None)
        if user_id is not None and not self.known(User, user_id):
            yield BrokenReference.USER
        if any(
            one and not self.known(Group, within, one) for one in (group_id, getattr(record, "member_group_id", None))
        ):
            yield BrokenReference.GROUP


class NaiveDesired(Resolver):
    """The desired state, one record at a time. Slow and simple on purpose."""

    def __init__(self, records: Iterable[Record]) -> None:
        super().__init__(records)
        self.rows: dict[DesiredKey, Row] = {}
        for organization in self.of(Organization):
            within = organization.organization_id
            self.rows["organization", within, "", within] = ("", "", "", organization.disabled, 0, "")
            if not organization.disabled:
                self.contents(organization)
                self.people(within)

    def effective(self, kind: type[Any], within: str) -> list[Any]:
        return [one for one in self.of(kind) if one.organization_id == within and self.cause(one) is None]

    def contents(self, organization: Organization) -> None:
        within = organization.organization_id
        for folder in self.effective(Folder, within):
            above = self.folders(within, folder.parent_folder_id)
            own = folder.access_type or ("" if above else organization.access_type)
            self.rows["folder", within, "", folder.folder_id] = (
                folder.parent_folder_id or "", str(own), "", False, len(above), ""
            )  # fmt: skip
        for document in self.effective(Document, within):
            own = document.access_type or ("" if document.folder_id else organization.access_type)
            self.rows["document", within, "", document.document_id] = (
                document.folder_id or "", str(own), "", False, 0, ""
            )  # fmt: skip
        for group in self.effective(Group, within):
            self.rows["group", within, "", group.organization_user_group_id] = ("", "", "", False, 0, "")

    def people(self, within: str) -> None:
        for user in self.of(User):
            if user.disabled:
                continue
            membership = self.known(Membership, within, user.user_id)
            if membership is not None and active(membership):
                self.rows["organizationUser", within, "", user.user_id] = row(membership.access_role)
            groups = self.groups(within, user.user_id)
            for group_id, via in groups.items():
                self.rows["groupMember", within, group_id, user.user_id] = row("", via)
            self.grants(within, user.user_id, groups)

    def groups(self, within: str, user_id: str) -> Mapping[str, str]:
        """Group → empty if the user is in it by name, otherwise the first of those through which they are."""
        members = self.effective(GroupMember, within)
        direct = {one.organization_user_group_id for one in members if one.user_id == user_id}
        found: dict[str, str] = {}
        for start in sorted(direct, reverse=True):
            reached = {start}
            for _ in members:
                reached |= {one.organization_user_group_id for one in members if one.member_group_id in reached}
            found |= dict.fromkeys(reached, start)
        return found | dict.fromkeys(direct, "")

    def grants(self, within: str, user_id: str, groups: Mapping[str, str]) -> None:
        grants = [one for one in self.effective(Grant, within) if active(one)]
        for place in {(one.folder_id, one.document_id) for one in grants}:
            here = [one for one in grants if (one.folder_id, one.document_id) == place]
            own = [one for one in here if one.user_id == user_id]
            of_groups = [one for one in here if one.organization_user_group_id in groups]
            deciding = own or [one for one in of_groups if one.access_role == "editor"] or of_groups
            if deciding:
                kind = "folderUser" if place[0] else "documentUser"
                via = min(one.organization_user_group_id or "" for one in deciding)
                self.rows[kind, within, place[0] or place[1] or "", user_id] = row(deciding[0].access_role, via)


def active(record: Any) -> bool:
    return record.expires_at is None or record.expires_at > NOW


def row(access_role: str, via: str = "") -> Row:
    return ("", "", str(access_role), False, 0, via)


def read_desired(directory: StoredDirectory, selection: Selection) -> dict[DesiredKey, Row]:
    with writing(directory.engine) as connection:
        compute_desired(connection, ledger_id=1, now=NOW, selection=selection)
        rows = run(connection, "SELECT * FROM desired").all()
        drop_temporary(connection)
    return {
        (one.kind, one.organization_id, one.container_id, one.item_id): (
            one.parent_id, one.access_type, one.access_role, bool(one.disabled), one.depth, one.via
        )
        for one in rows
    }  # fmt: skip


@pytest.mark.extended
@settings(max_examples=150, deadline=None, suppress_health_check=fixtures_may_stay)
@given(number=numbers)
def test_desired_state_follows_the_rules(number: int, stored_directory: StoredDirectory) -> None:
    records = Company(number).records()
    stored_directory.write(records)
    expected_rows = NaiveDesired(records).rows
    assert read_desired(stored_directory, Selection()) == expected_rows
    for organizations, users in ((["acme"], []), ([], ["ada", "bob"]), (["acme"], ["g1"])):
        selected = {
            key: value
            for key, value in expected_rows.items()
            if (not organizations or key[1] in organizations)
            and (not users or (key[3] in users and (key[0].endswith("User") or key[0] == "groupMember")))
        }
        assert read_desired(stored_directory, Selection.of(organizations, users)) == selected


def read_causes(directory: StoredDirectory) -> dict[tuple[str, ...], BrokenReference]:
    """Key of each record without effect → its cause, by the texts for everything."""
    found: dict[tuple[str, ...], BrokenReference] = {}
    with reading(directory.engine) as connection:
        for table in KIND_TABLES:
            if table.kind in {Organization.kind, User.kind}:
                continue
            keys = ", ".join(f"m.{name}" for name in table.keys)
            text = "WITH RECURSIVE {folders} SELECT {keys}, {cause} AS cause FROM {table} m"
            parts = {"keys": keys, "cause": cause(table.kind, "m"), "table": table.table.name}
            for one in run(connection, text, folders=ALL_FOLDERS, **parts):
                if one.cause:
                    found[(table.kind, *one[:-1])] = BrokenReference(one.cause)
    return found


def column_key(record: Any) -> tuple[str, ...]:
    """The key in the columns of the access model."""
    table = next(table for table in KIND_TABLES if table.kind == record.kind)
    return (record.kind, *(getattr(record, name) or "" for name in table.keys))


@settings(max_examples=150, deadline=None, suppress_health_check=fixtures_may_stay)
@given(number=numbers)
def test_causes_follow_the_rules(number: int, stored_directory: StoredDirectory) -> None:
    records = Company(number).records()
    stored_directory.write(records)
    resolver = Resolver(records)
    expected = {column_key(one): why for one in resolver.records.values() if (why := resolver.cause(one)) is not None}
    assert read_causes(stored_directory) == expected
    with reading(stored_directory.engine) as connection:
        for table in KIND_TABLES:
            keys = [column_key(one)[1:] for one in resolver.records.values() if one.kind == table.kind]
            unknown = [("nowhere",) * len(table.keys)]
            found = find_causes(connection, table.kind, keys + unknown)
            assert found == {key[1:]: why for key, why in expected.items() if key[0] == table.kind}


def test_random_records_have_every_cause() -> None:
    met = set()
    for number in range(300):
        resolver = Resolver(Company(number).records())
        met |= {(one.kind, resolver.cause(one)) for one in resolver.records.values()}
    in_folders = {BrokenReference.FOLDER, BrokenReference.CYCLE}
    for kind, causes in (
        (Membership, {BrokenReference.USER}),
        (GroupMember, {BrokenReference.USER, BrokenReference.GROUP}),
        (Folder, in_folders),
        (Document, in_folders),
        (Grant, {*in_folders, BrokenReference.USER, BrokenReference.GROUP, BrokenReference.DOCUMENT}),
        (ContextGrant, {*in_folders, BrokenReference.USER, BrokenReference.GROUP, BrokenReference.DOCUMENT}),
    ):
        assert {(kind.kind, one) for one in {*causes, BrokenReference.ORGANIZATION, None}} <= met
