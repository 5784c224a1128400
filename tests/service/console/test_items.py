"""Tests of an item's page: the places of its records in the sources, by name and through groups."""

import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
import yaml
from sqlalchemy import delete, insert

from app.foundation.database.engine import writing
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.ledger.failures import message_digest
from app.sync.ledger.items import ItemKey
from app.sync.ledger.ledger import open_ledger
from app.sync.ledger.tables import ItemFailureRow
from app.sync.plan.tables import PlanItemRow, PlanPartRow, PlanRow
from tests.conftest import DATABASES
from tests.service.console import states
from tests.service.console.conftest import Office, standing_office
from tests.service.console.test_pages import planned_run
from tests.service.console.visitors import token_of

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


DOCUMENT = {"kind": "document", "item_id": "plan"}


def _fail(office: Office, *failures: dict[str, Any]) -> None:
    """Replaces the failures of the ledger."""
    ledger = open_ledger(office.engine, "http://backend.test", "key", office.time)
    usual = {"ledger_id": ledger.ledger_id, "organization_id": "acme", "container_id": "", "fingerprint": ""}
    usual |= {"deleting": False, "failures": 10, "retry_at": 0, "parked": True}
    with writing(office.engine) as connection:
        connection.execute(delete(ItemFailureRow))
        for failure in failures:
            row = {**usual, **failure, "message_digest": message_digest(failure["message"])}
            connection.execute(insert(ItemFailureRow.__table__).values(row))


def _text(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


ACTORS = {
    "INVALID_ARGUMENT: too long": "Who acts: the owner of the source corrects the record: people: {place}",
    "PERMISSION_DENIED: no": "Who acts: the backend's administrator does what the message asks for. Then retry.",
    "NOT_FOUND: no": "Who acts: an operator of Usher starts a verify",
    "UNAVAILABLE: no": "Who acts: nobody yet",
    "email is used by another user of this organization": "Who acts: the owner of the source corrects the record",
    "the name is longer than 200 characters": "Who acts: the owner of the source corrects the record",
    "Parent folder does not exist.": "Who acts: an operator of Usher starts a verify",
    "the user is not a member of the organization": "Who acts: an operator of Usher starts a verify",
    "it is odd": "Who acts: the backend's administrator finds out why it refuses this. The record is people: {place}",
}


@pytest.mark.parametrize("message", ACTORS)
def test_a_failure_names_who_must_act_and_the_place_of_the_record(office: Office, message: str) -> None:
    place = _line("documentId: plan", "documentName")
    _fail(office, DOCUMENT | {"message": message})
    browser = office.browser(Role.VIEWER)
    asked = {"kind": "document", "organization": "acme", "item": "plan"}
    for path in (address("parked"), address("parked", message=message), address("ledger_item", **asked)):
        assert ACTORS[message].format(place=place) in _text(browser.get(path)), path
    # A record that no source contains has no owner.
    _fail(office, {"kind": "document", "item_id": "gone", "message": message})
    assert "corrects the record" not in _text(browser.get(address("parked")))
    _fail(office)


def test_the_page_of_a_failed_item_shows_what_the_directory_contains_now_and_retries_it(office: Office) -> None:
    failed = {"kind": "document", "action": "add", "operation": "add_documents", "status": "failed"}

    def shown(role: Role = Role.VIEWER, **columns: str) -> str:
        with writing(office.engine) as connection:
            for made in (PlanItemRow, PlanPartRow, PlanRow):
                connection.execute(delete(made))
        run = planned_run(office, **{**failed, "item_id": "plan", "message": "INVALID_ARGUMENT: too long", **columns})
        return office.browser(role).get(address("item", run=run, ordinal=1))

    _fail(office, DOCUMENT | {"message": "INVALID_ARGUMENT: too long"})
    html = _text(shown(payload='{"documentName": "a longer plan"}'))
    assert "writing it failed 10 times in a row, and it is not tried again until it changes" in html
    assert "changed since it was sent The next sync sends what is below." in html
    assert "The same as was sent" in _text(shown(payload='{"documentName": "plan"}'))
    assert ">Retry</button>" not in shown()
    html = shown(Role.APPROVER)
    approver = office.browser(Role.APPROVER)
    chosen = re.search(r'name="only" value="1"><input type="hidden" name="chosen" value="([^"]*)"', html)
    assert chosen is not None
    form = {"formToken": token_of(approver), "only": "1", "chosen": unescape(chosen[1])}
    approver.post(address("retry"), form)
    assert (ItemKey("document", "acme", "", "plan"),) in [run.items for run in office.runs.recent()]
    assert "not in the directory So the next sync no longer sends it." in _text(shown(item_id="gone"))
    _fail(office)
    assert "It does not fail any more" in shown()
    assert "It does not fail any more" not in shown(status="done")


@pytest.mark.parametrize(
    ("kind", "container", "user", "is_sent"),
    [
        ("documentUser", "plan", "bob", True),
        ("documentUser", "wide", "dan", True),
        ("documentUser", "plan", "dan", False),
        ("groupMember", "eng", "bob", True),
        ("groupMember", "eng", "dan", False),
        ("organizationUser", "", "bob", True),
        ("organizationUser", "", "eve", False),
    ],
)
def test_an_entry_of_a_user_without_a_grant_or_membership_is_no_longer_sent(
    office: Office, kind: str, container: str, user: str, is_sent: bool
) -> None:
    with writing(office.engine) as connection:
        for made in (PlanItemRow, PlanPartRow, PlanRow):
            connection.execute(delete(made))
    failed = {"kind": kind, "container_id": container, "action": "add", "status": "failed"}
    sent = {"operation": "add_users", "payload": json.dumps({"name": user})}
    run = planned_run(office, item_id=user, **failed, **sent)
    html = office.browser(Role.VIEWER).get(address("item", run=run, ordinal=1))
    assert ("The same as was sent" in html) is is_sent
    assert ("So the next sync no longer sends it" in html) is not is_sent


def test_a_delete_in_its_grace_period_is_not_shown_as_settled(office: Office) -> None:
    with writing(office.engine) as connection:
        for made in (PlanItemRow, PlanPartRow, PlanRow):
            connection.execute(delete(made))
    message = "kept for the grace period, until 2026-11-28 12:00 UTC"
    run = planned_run(office, item_id="gone", status="waiting", message=message)
    html = office.browser(Role.VIEWER).get(address("item", run=run, ordinal=1))
    assert message in html
    assert "It does not fail any more" not in html


def test_the_history_of_an_item_leaves_previews_out_and_folds_equal_outcomes(office: Office) -> None:
    browser = office.browser(Role.VIEWER)
    preview = states.planned(office, dry_run=True)
    shown = address("item", run=preview.run_id, ordinal=1)
    assert "History Only previews contain it." in _text(browser.get(shown))
    runs = [states.planned(office).run_id for _ in range(3)][::-1]
    states.planned(office, dry_run=True)
    folder = address("ledger_item", kind="folder", organization="acme", item="folder-1")
    for path in (shown, folder):
        html = browser.get(path)
        # Equal outcomes in a row are one row, with the first and the last run.
        assert re.findall(r'href="/console/item\?run=([^&]+)&amp;ordinal=1"', html) == [runs[0], runs[2]], path
        assert "planned 3 times" in _text(html)
    html = browser.get(address("item", run=runs[1], ordinal=1))
    assert re.findall(r'href="/console/item\?run=([^&]+)&amp;ordinal=1"', html) == [runs[0], runs[2]]
    assert "this one" in html
    assert "planned 3 times" not in _text(html)


REFUSED = {
    ("document", "plan"): address("document", organization="acme", id="plan"),
    ("group", "platform"): address("group", organization="acme", id="platform"),
    ("organization", "acme"): address("organization", id="acme"),
    ("organizationUser", "bob"): address("user", organization="acme", id="bob"),
}


def test_the_pages_of_records_show_what_the_backend_refuses(office: Office) -> None:
    message = "INVALID_ARGUMENT: too long"
    _fail(office, *({"kind": kind, "item_id": item, "message": message} for kind, item in REFUSED))
    browser = office.browser(Role.VIEWER)
    for (kind, item), path in REFUSED.items():
        html = browser.get(path)
        assert f"in the backend failed 10 times: {message}" in _text(html), path
        link = re.search(r'href="([^"]+)">Who must act</a>', html)
        assert link is not None
        assert f"kind={kind}&organization=acme&item={item}" in unescape(link[1])
        assert f"Writing it failed 10 times: {message}" in _text(browser.get(unescape(link[1])))
    assert message not in browser.get(address("document", organization="acme", id="wide"))
    assert message not in browser.get(address("user", organization="acme", id="dan"))
    _fail(office)
