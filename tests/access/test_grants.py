"""Pages of grants, of which some are removed between two pages."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from app.access.browse.grants import GrantEntry, ResourceIds, grants_of_groups, grants_on_levels
from app.access.records import AccessRole, Folder, Grant, Group, Organization, Record, User
from app.foundation.database.engine import reading
from tests.worlds.access_model import StoredDirectory, stored_directory

__all__ = ["stored_directory"]

NOW = datetime(2026, 11, 1, tzinfo=UTC)
LEVELS = [ResourceIds("inner"), ResourceIds("middle"), ResourceIds("outer")]
GROUPS = ["first", "second", "third"]


def grant(folder_id: str, user_id: str | None = None, group_id: str | None = None) -> Grant:
    return Grant(
        organization_id="acme",
        folder_id=folder_id,
        user_id=user_id,
        organization_user_group_id=group_id,
        access_role=AccessRole.VIEWER,
    )


def pages(
    directory: StoredDirectory,
    grants: Sequence[Grant],
    removed: Grant,
    page: Callable[[Sequence[str], int], Sequence[GrantEntry]],
    cursor: Callable[[GrantEntry], tuple[str, ...]],
) -> list[GrantEntry]:
    """The first entry, and all entries after it once a grant was removed."""
    others: list[Record] = [
        Organization(organization_id="acme", organization_name="Acme"),
        User(user_id="ada", name="Ada", email=""),
        *(Folder(organization_id="acme", folder_id=level, folder_name="") for level, _ in LEVELS),
        *(Group(organization_id="acme", organization_user_group_id=group, group_name="") for group in GROUPS),
    ]
    directory.write([*others, *grants])
    [first] = page((), 1)
    directory.write([*others, *(entry for entry in grants if entry != removed)])
    return [first, *page(cursor(first), 10)]


def test_grants_on_levels_continue_after_a_level_that_lost_its_grants(stored_directory: StoredDirectory) -> None:
    grants = [grant(level, user_id="ada") for level, _ in LEVELS]

    def page(after: Sequence[str], limit: int) -> list[GrantEntry]:
        with reading(stored_directory.engine) as connection:
            return grants_on_levels(connection, "acme", LEVELS, after=after, limit=limit, now=NOW)

    found = pages(stored_directory, grants, grants[0], page, lambda entry: (entry.resource_id, "", entry.holder_id, ""))
    assert [entry.resource_id for entry in found] == ["inner", "middle", "outer"]
    assert [entry.nearer for entry in found] == [None, None, grants[1]]


def test_grants_of_groups_continue_after_a_group_that_lost_its_grants(stored_directory: StoredDirectory) -> None:
    grants = [grant("inner", group_id=group) for group in GROUPS]

    def page(after: Sequence[str], limit: int) -> list[GrantEntry]:
        with reading(stored_directory.engine) as connection:
            return grants_of_groups(connection, "acme", GROUPS, after=after, limit=limit)

    found = pages(stored_directory, grants, grants[0], page, lambda entry: (entry.holder_id, entry.resource_id, ""))
    assert [entry.holder_id for entry in found] == GROUPS


def test_grants_of_disabled_users_have_no_effect(stored_directory: StoredDirectory) -> None:
    stored_directory.write(
        [
            Organization(organization_id="acme", organization_name="Acme"),
            Folder(organization_id="acme", folder_id="inner", folder_name=""),
            *(User(user_id=user, name="", email="", disabled=user == "gone") for user in ("ada", "gone")),
            *(grant("inner", user_id=user) for user in ("ada", "gone")),
        ]
    )
    with reading(stored_directory.engine) as connection:
        entries = grants_on_levels(connection, "acme", [ResourceIds("inner")], after=(), limit=10, now=NOW)
    assert [(entry.holder_id, entry.without_effect) for entry in entries] == [
        ("ada", ""),
        ("gone", "the user is disabled"),
    ]
