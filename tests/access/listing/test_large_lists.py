"""Lists of access read and keep at most a batch, whatever the members and the depth of the organization."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from unittest.mock import patch

import pytest
from sqlalchemy import Connection, event

from app.access.decision.ancestry import Ancestry
from app.access.decision.decide import DecisionPolicy
from app.access.listing import batch_view, resources, users
from app.access.listing.users import UserList
from app.access.records import AccessType, Document, Folder, Grant, Group, GroupMember, Organization, Record, User
from app.foundation.database.engine import is_sqlite, reading, writing
from app.foundation.database.statements import prefer_indexes, run
from tests.worlds.access_model import StoredDirectory
from tests.worlds.random_directories import NOW

WANTED = UserList(organization_id="acme", type="document", resource_id="plan", at=NOW)


def _granted_to_group(members: int, *, disabled: int = 0, exists: bool = True) -> Iterator[Record]:
    """A restricted document that is granted to a group. The first of its members are disabled."""
    yield Organization(organization_id="acme", organization_name="", access_type=AccessType.RESTRICTED)
    yield Document(organization_id="acme", document_id="plan", document_name="")
    yield Grant(organization_id="acme", document_id="plan", organization_user_group_id="staff")
    if exists:
        yield Group(organization_id="acme", organization_user_group_id="staff", group_name="")
    for number in range(members):
        user_id = f"u{number:05}"
        yield User(user_id=user_id, name=f"User {number}", email="", disabled=number < disabled)
        yield GroupMember(organization_id="acme", organization_user_group_id="staff", user_id=user_id)


def _users(connection: Connection, *, after: str = "") -> list[tuple[str, str]]:
    page = WANTED.page(connection, DecisionPolicy(), after=("user", after) if after else (), limit=2)
    return [(entry.item_id, entry.name) for entry in page.entries]


def test_disabled_members_are_no_candidates(stored_directory: StoredDirectory) -> None:
    stored_directory.write(_granted_to_group(500, disabled=499))
    statements: list[str] = []
    with reading(stored_directory.engine) as connection:
        event.listen(connection, "before_cursor_execute", lambda *given: statements.append(given[2]))
        assert _users(connection) == [("u00499", "User 499")]
    assert len([sql for sql in statements if "granted_group" in sql]) == 1


class _Measured(batch_view.BatchView):
    """Measures the records and grants of users that it keeps."""

    kept: list[int]

    def load(self, user_ids: Sequence[str], **places: Sequence[str]) -> None:  # type: ignore[override] # as called
        super().load(user_ids, **places)
        self.kept.append(sum(len(kept) for kept in vars(self).values() if isinstance(kept, dict)))


def test_denied_users_are_forgotten_after_each_batch(stored_directory: StoredDirectory) -> None:
    """The group does not exist: its members are candidates, and are all denied."""
    stored_directory.write(_granted_to_group(400, exists=False))
    _Measured.kept = []
    with (
        reading(stored_directory.engine) as connection,
        patch.object(users, "BatchView", _Measured),
        patch("app.access.listing.page._MAX_CANDIDATES", 20),
    ):
        assert _users(connection) == []
    assert len(_Measured.kept) >= 20
    assert max(_Measured.kept) <= 5 * 20


@pytest.mark.parametrize(
    ("query", "parts", "index"),
    [
        (resources._NEXT, {"kind": "folder"}, "ix_model_folder_bytes"),
        (resources._NEXT, {"kind": "document"}, "ix_model_document_bytes"),
        (users._MEMBERS, {"active": "TRUE", "of_role": "TRUE"}, "ix_model_membership_bytes"),
        (users._EVERYONE, {}, "ix_model_user_bytes"),
    ],
)
def test_the_next_ids_are_not_sorted(
    stored_directory: StoredDirectory, query: str, parts: Mapping[str, str], index: str
) -> None:
    """The ids are read in the order of their bytes: by the key on SQLite, by an index of its own on PostgreSQL."""
    with reading(stored_directory.engine) as connection:
        prefer_indexes(connection)
        on_sqlite = is_sqlite(connection)
        explain = "EXPLAIN QUERY PLAN" if on_sqlite else "EXPLAIN"
        page = {"organization_id": "acme", "after": "", "limit": 10}
        plan = str(run(connection, f"{explain} {query}", page, **parts).all())
    assert "Sort" not in plan and "TEMP B-TREE" not in plan, plan  # noqa: PT018 - one per database
    assert on_sqlite or index in plan, plan


def test_a_page_reads_the_next_members_alone(stored_directory: StoredDirectory) -> None:
    """SQLite has an order of ids by their bytes in the key. PostgreSQL compares all remaining ids."""
    if not is_sqlite(stored_directory.engine):
        pytest.skip("PostgreSQL has no index in the order of the bytes")
    steps = []
    for members in (100, 3000):
        stored_directory.write(_granted_to_group(members))
        with reading(stored_directory.engine) as connection:
            steps.append(_steps_of_a_page(connection))
    assert steps[1] < 1.2 * steps[0], steps


def _steps_of_a_page(connection: Connection) -> int:
    """Steps of SQLite's virtual machine, in tens."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    steps = [0]

    def count() -> int:
        steps[0] += 1
        return 0

    _users(connection)
    driver.set_progress_handler(count, 10)
    assert [user_id for user_id, _ in _users(connection, after="u00009")] == ["u00010", "u00011"]
    driver.set_progress_handler(None, 10)
    return steps[0]


def test_ancestries_of_a_deep_tree_are_not_all_kept(stored_directory: StoredDirectory) -> None:
    ids = [f"f{number:04}" for number in range(400)]
    chain: list[Record] = [Organization(organization_id="acme", organization_name="")]
    for folder_id, above in zip(ids, [None, *ids], strict=False):
        chain.append(Folder(organization_id="acme", folder_id=folder_id, folder_name="", parent_folder_id=above))
    stored_directory.write(chain)
    with reading(stored_directory.engine) as connection:
        view = batch_view.BatchView(connection, "acme", user_id="ada")
        view.load(["ada"], folder_ids=ids)
        assert [len(view.ancestry_of("acme", folder_id).folders) for folder_id in ids] == list(range(1, 401))
        kept = [value for value in vars(view).values() if isinstance(value, dict)]
        ancestries = [each for values in kept for each in values.values() if isinstance(each, Ancestry)]
        assert sum(len(ancestry.folders) for ancestry in ancestries) <= 64 * 64 + 400
        assert view.ancestry_of("acme", ids[-1]) is view.ancestry_of("acme", ids[-1])


def test_grants_on_a_place_that_was_not_loaded_are_read(stored_directory: StoredDirectory) -> None:
    stored_directory.write(_granted_to_group(2))
    with reading(stored_directory.engine) as connection:
        view = batch_view.BatchView(connection, "acme")
        view.load(["u00000"])
        assert [grant.organization_user_group_id for grant in view.grants("acme", "document", "plan", "u00000")] == [
            "staff"
        ]
        view.load(["u00001"], document_ids=["plan"])
        assert len(view.grants("acme", "document", "plan", "u00000")) == 1
        assert len(view.grants("acme", "document", "plan", "u00001")) == 1


@pytest.mark.parametrize("of_one_user", [False, True])
def test_only_own_grants_of_the_batch_are_read(stored_directory: StoredDirectory, of_one_user: bool) -> None:
    """A document has 2,000 grants, and a user has 2,000."""
    if is_sqlite(stored_directory.engine):
        pytest.skip("SQLite joins in the order of the statement")
    ids = [f"{number:05}" for number in range(2000)]
    grants = [Grant(organization_id="acme", document_id="plan", user_id=f"u{number}") for number in ids]
    grants += [Grant(organization_id="acme", document_id=f"d{number}", user_id="ada") for number in ids]
    # Statistics of the others suggest that documents and users have few grants.
    grants += [Grant(organization_id="acme", document_id=f"d{number}", user_id=f"u{number}") for number in ids]
    stored_directory.write([Organization(organization_id="acme", organization_name=""), *grants])
    with writing(stored_directory.engine) as connection:
        connection.exec_driver_sql("ANALYZE model_grant")
    users = ["ada"] if of_one_user else [f"u{number}" for number in ids[:20]]
    documents = [f"d{number}" for number in ids[:20]] if of_one_user else ["plan"]
    with reading(stored_directory.engine) as connection:
        prefer_indexes(connection)
        batch_view.BatchView(connection, "acme").load(users, document_ids=documents)
        read = "SELECT idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'model_grant'"
        assert connection.exec_driver_sql(read).scalar_one() == 20
