"""Tests of an item's page: the places of its records in the sources, by name and through groups."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
import yaml
from sqlalchemy import delete

from app.foundation.database.engine import writing
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.plan.tables import PlanItemRow, PlanPartRow, PlanRow
from tests.conftest import DATABASES
from tests.service.console.conftest import Office, standing_office
from tests.service.console.test_pages import planned_run

MANY = tuple(f"many-{number:02}" for number in range(12))
ACME = {"organizationId": "acme"}


def _directory() -> dict[str, list[dict[str, Any]]]:
    """Bob is in platform, which is in eng; both, and he himself, were let in on the plan. Dan is in twelve groups."""

    def grant(document: str, **to: str) -> dict[str, str]:
        return {**ACME, "documentId": document, **to}

    def member(group: str, **who: str) -> dict[str, str]:
        return {**ACME, "organizationUserGroupId": group, **who}

    groups = ("platform", "eng", "others", *MANY)
    return {
        "organizations": [{**ACME, "organizationName": "Acme"}],
        "users": [{"userId": one, "name": one, "email": ""} for one in ("bob", "dan")],
        "memberships": [{**ACME, "userId": one} for one in ("bob", "dan")],
        "groups": [{**ACME, "organizationUserGroupId": one, "groupName": one} for one in groups],
        "groupMembers": [
            member("platform", userId="bob"),
            member("eng", memberGroupId="platform"),
            *(member(one, userId="dan") for one in MANY),
        ],
        "documents": [{**ACME, "documentId": one, "documentName": one} for one in ("plan", "wide")],
        "grants": [
            grant("plan", userId="bob"),
            grant("plan", organizationUserGroupId="platform", accessRole="viewer", expiresAt="2020-01-01T00:00:00Z"),
            grant("plan", organizationUserGroupId="eng", accessRole="editor"),
            grant("plan", organizationUserGroupId="others"),
            *(grant("wide", organizationUserGroupId=one) for one in MANY),
        ],
    }


WRITTEN = yaml.safe_dump(_directory(), sort_keys=False, width=200, default_flow_style=None)


@pytest.fixture(scope="module", params=DATABASES)
def office(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with standing_office(request, tmp_path_factory.mktemp("items"), WRITTEN) as opened:
        yield opened


def _line(*words: str) -> str:
    """The line of the directory file that has all of these words."""
    (found,) = (n for n, line in enumerate(WRITTEN.splitlines(), 1) if all(word in line for word in words))
    return f"directory.yaml:{found}"


def _records(office: Office, **columns: str) -> tuple[list[str], str]:
    """The rows of the section on the directory, as text, and the page."""
    with writing(office.engine) as connection:
        for made in (PlanItemRow, PlanPartRow, PlanRow):
            connection.execute(delete(made))
    values = {"operation": "add_users", "action": "add", "scope": '["acme","document","plan"]', **columns}
    run = planned_run(office, **values)
    html = office.browser(Role.VIEWER).get(address("item", run=run, ordinal=1))
    table = re.search(r'aria-label="Records">(.*?)</table>', html, re.DOTALL)
    assert table is not None
    rows = table[1].partition("<tbody>")[2].split("<tr>")[1:]
    return [re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", row))).strip() for row in rows], html


def test_grants_through_groups_are_listed(office: Office) -> None:
    rows, html = _records(office, kind="documentUser", container_id="plan", item_id="bob")
    assert [row.partition(" people: ")[0] for row in rows] == [
        "grant",
        "user",
        "grant to group platform as viewer, ended",
        "group member of user bob in group platform",
        "grant to group eng as editor",
        "group member of group platform in group eng",
    ]
    assert [row.rpartition(" ")[2] for row in rows] == [
        _line("documentId: plan", "userId: bob"),
        _line("email", "userId: bob"),
        _line("documentId: plan", "organizationUserGroupId: platform"),
        _line("organizationUserGroupId: platform", "userId: bob"),
        _line("documentId: plan", "organizationUserGroupId: eng"),
        _line("organizationUserGroupId: eng", "memberGroupId: platform"),
    ]
    assert "others" not in html.partition("Records")[2]
    assert address("group", id="eng", organization="acme").replace("&", "&amp;") in html


def test_the_first_groups_are_listed_with_a_link_to_all(office: Office) -> None:
    rows, html = _records(office, kind="documentUser", container_id="wide", item_id="dan")
    assert rows[0] == "grant no record of its own"
    assert sum(row.startswith("grant to group") for row in rows) == 10
    assert "2 more groups of the user have a grant on it" in html
    assert address("user", id="dan", organization="acme").replace("&", "&amp;") in html


def test_nested_memberships_are_listed(office: Office) -> None:
    rows, _ = _records(office, kind="groupMember", container_id="eng", item_id="bob", operation="add_users_to_groups")
    assert [row.partition(" people: ")[0] for row in rows] == [
        "group member no record of its own",
        "user",
        "group member of user bob in group platform",
        "group member of group platform in group eng",
    ]
    rows, _ = _records(office, kind="groupMember", container_id="others", item_id="bob")
    assert [row.partition(" people: ")[0] for row in rows] == ["group member no record of its own", "user"]
