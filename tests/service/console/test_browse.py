"""Browsing: organizations, folders by their levels, documents, users and groups, and what reaches what."""

import csv
import json
import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from zlib import crc32

import pytest
import yaml
from sqlalchemy import delete

from app.access.problem_list import ProblemList
from app.access.records import (
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
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.foundation.database.engine import writing
from app.service.console.settings import Role
from app.service.console.urls import address
from tests.conftest import DATABASES
from tests.service.console.access_pages import FOLDER, GROUP, USER
from tests.service.console.conftest import Browser, Office, standing_office

HOSTILE = "<script>alert(1)</script>\"'\u202e&amp;"
PAST, LATER = "2020-01-01T00:00:00Z", "2040-01-01T00:00:00Z"


def _directory() -> dict[str, list[dict[str, Any]]]:
    """Folders three deep, groups in groups, and more documents, members and grants than a page has."""
    acme = {"organizationId": "acme"}
    people = ["ada", "bob", "cleo", *(f"user-{number:03}" for number in range(60)), HOSTILE]
    return {
        "organizations": [
            {**acme, "organizationName": "Acme"},
            {"organizationId": "other", "organizationName": "Other"},
        ],
        "users": [{"userId": one, "name": f"Name of {one}", "email": f"{one}@acme.example"} for one in people],
        "memberships": [{**acme, "userId": one, "accessRole": "viewer"} for one in people if one != "cleo"],
        "groups": [
            {**acme, "organizationUserGroupId": one, "groupName": f"Group {one}"} for one in ("eng", "platform", "ops")
        ],
        "groupMembers": [
            {**acme, "organizationUserGroupId": "platform", "userId": "bob"},
            {**acme, "organizationUserGroupId": "eng", "memberGroupId": "platform"},
            *({**acme, "organizationUserGroupId": "ops", "userId": f"user-{n:03}"} for n in range(60)),
        ],
        "folders": [
            {**acme, "folderId": "top", "folderName": "The top"},
            {**acme, "folderId": "middle", "folderName": "The middle", "parentFolderId": "top"},
            {
                **acme,
                "folderId": "deep",
                "folderName": HOSTILE,
                "parentFolderId": "middle",
                "accessType": "restricted",
            },
        ],
        "documents": [
            {**acme, "documentId": "plan", "documentName": "The plan", "folderId": "deep"},
            *({**acme, "documentId": f"d-{n:03}", "documentName": f"Document {n}"} for n in range(120)),
        ],
        "grants": [
            {**acme, "folderId": "top", "userId": "ada", "accessRole": "editor"},
            {**acme, "documentId": "plan", "userId": "ada", "accessRole": "viewer"},
            {**acme, "folderId": "middle", "userId": "cleo", "accessRole": "editor", "expiresAt": PAST},
            {**acme, "folderId": "middle", "organizationUserGroupId": "eng", "accessRole": "editor"},
            {**acme, "folderId": "deep", "userId": HOSTILE, "accessRole": "viewer", "expiresAt": LATER},
            *({**acme, "documentId": "d-000", "userId": f"user-{n:03}", "accessRole": "viewer"} for n in range(60)),
            *({**acme, "documentId": f"d-{n:03}", "userId": "bob", "accessRole": "editor"} for n in range(60)),
            *({**acme, "documentId": f"d-{n:03}", "organizationUserGroupId": "eng"} for n in range(60)),
        ],
    }


@pytest.fixture(scope="module", params=DATABASES)
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    written = yaml.safe_dump(_directory(), allow_unicode=True)
    with standing_office(request, tmp_path_factory.mktemp("full"), written) as office:
        yield office


def _words(html: str) -> str:
    """The page as it is read."""
    main = html[html.index("<main") :]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", main)))


def _rows(html: str, list_id: str) -> list[str]:
    """The rows of one list, as they are read."""
    found = re.search(rf'<h2 id="{list_id}"[^>]*>.*?</section>', html, re.DOTALL)
    assert found is not None, f"no list {list_id}"
    body = found[0].partition("<tbody>")[2]
    rows = (row.partition("</tr>")[0] for row in body.split("<tr>")[1:])
    return [re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", row))).strip() for row in rows]


def _through(browser: Browser, path: str, list_id: str) -> list[str]:
    """All rows of a list, page by page; no page has more than fifty."""
    rows: list[str] = []
    while path:
        html = browser.get(path)
        assert browser.status == 200, path
        page = _rows(html, list_id)
        assert 0 < len(page) <= 50
        rows += page
        section = re.search(rf'<h2 id="{list_id}"[^>]*>.*?</section>', html, re.DOTALL)
        assert section is not None
        link = re.search(r'href="([^"]+)">Next page', section[0])
        path = unescape(link[1]) if link else ""
    return rows


def test_organizations_lead_to_what_is_in_them(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    rows = _rows(browser.get(address("browse")), "organizations")
    assert [row.split(" ")[0] for row in rows] == ["Acme", "Other"]
    html = browser.get(address("organization", id="acme"))
    assert "The top top" in _rows(html, "contents")[0]  # folders come before documents
    assert len(_through(browser, address("organization", id="acme"), "contents")) == 121
    members = _through(browser, address("organization", id="acme", list="members"), "members")
    assert [row.partition(" viewer")[0] for row in members[1:4]] == [
        "Name of ada ada",
        "Name of bob bob",
        "Name of user-000 user-000",
    ]
    assert len(members) == 63
    # The members and the grants of each group.
    assert _rows(browser.get(address("organization", id="acme", list="groups")), "groups") == [
        "Group eng eng 0 61",
        "Group ops ops 60 0",
        "Group platform platform 1 0",
    ]
    assert "Nothing is at its top level" in browser.get(address("organization", id="other"))


@pytest.mark.parametrize("longest", [4_000, 10])
def test_lists_are_searched(full: Office, monkeypatch: pytest.MonkeyPatch, longest: int) -> None:
    """By name, address and id, in a list that is sorted by name and in one that is too long for that."""
    monkeypatch.setattr("app.access.browse.by_name.MAX_BY_NAME", longest)
    browser = full.browser(Role.VIEWER)
    acme, ops = {"id": "acme"}, {"organization": "acme", "id": "ops"}
    for page, where, list_id, text, found in (
        ("organization", acme | {"list": "members"}, "members", "ADA of", ["ada"]),
        ("organization", acme | {"list": "members"}, "members", "user-01", [f"user-{n:03}" for n in range(10, 20)]),
        ("organization", acme | {"list": "members"}, "members", "bob@acme", ["bob"]),
        ("organization", acme | {"list": "members"}, "members", "cleo", []),
        ("organization", acme | {"list": "groups"}, "groups", "group plat", ["platform"]),
        ("group", ops, "users", "user-000", ["user-000"]),
        ("group", ops, "users", "ada", []),
    ):
        rows = _rows(browser.get(address(page, **where, q=text)), list_id)
        assert [row.split(" ")[2 if list_id == "groups" else 3] for row in rows] == found, (page, text)
    members = _through(browser, address("organization", id="acme", list="members"), "members")
    assert len(members) == 63
    assert ("in the order of the ids" in browser.get(address("group", **ops)).lower()) == (longest == 10)
    rows = _rows(browser.get(address("organization", id="acme", q="plan")), "contents")
    assert len(rows) == 1
    assert rows[0].startswith("The plan plan The top / The middle / ")


def test_a_folder_shows_its_path_contents_and_grants(full: Office) -> None:
    html = full.browser(Role.VIEWER).get(address("folder", organization="acme", id="deep"))
    words = _words(html)
    assert "Browse / Acme / The top / The middle" in words
    assert "Access type restricted its own" in words
    rows = _rows(html, "reaching")
    # Nearest first; of each level groups before users.
    assert [row.split(" ")[:3] for row in rows[1:]] == [
        ["group", "Group", "eng"],
        ["user", "Name", "of"],
        ["user", "Name", "of"],
    ]
    assert "The middle" in rows[1]
    assert "The top" in rows[3]
    assert "this folder" in rows[0]
    assert "editor, ended" in rows[2]


def test_a_document_shows_the_deciding_grant(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    rows = _rows(browser.get(address("document", organization="acme", id="plan")), "reaching")
    assert "this document" in rows[0]
    assert "viewer" in rows[0]
    farther = next(row for row in rows if "The top" in row)
    assert "viewer of a closer grant, not editor" in farther
    assert len(_through(browser, address("document", organization="acme", id="d-000"), "reaching")) == 62


def test_a_user_is_shown_with_groups_and_grants(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    here = address("user", id="bob")
    html = browser.get(here)
    assert _rows(html, "groups") == [
        "Group platform platform directly backend",
        "Group eng eng through Group platform backend",
    ]
    grants = _through(browser, here, "grants")
    assert [" own grant " in row for row in grants] == [True] * 60 + [False] * 61
    assert len(set(grants)) == 121
    assert "Group platform in Group eng" in grants[60]
    assert "editor of their own grant, not editor" in grants[60]
    assert "no, but has a group or a grant" in browser.get(address("user", id="cleo"))
    html = browser.get(address("user", id="cleo"))
    assert re.search(r"Groups in \w+ The user is in no group in \w+\.", _words(html))
    assert [" own grant " in row for row in _rows(html, "grants")] == [True]


def test_a_group_shows_its_members_and_parents(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    html = browser.get(address("group", organization="acme", id="platform"))
    assert [row.split(" ")[1] for row in _rows(html, "around")] == ["eng"]
    assert 'id="inside"' not in html
    html = browser.get(address("group", organization="acme", id="eng"))
    assert [row.split(" ")[1] for row in _rows(html, "inside")] == ["platform"]
    assert "Users in it 1 0 of them directly" in _words(html)
    assert _rows(html, "users") == ["Name of bob bob through Group platform what they can open"]
    assert len(_through(browser, address("group", organization="acme", id="eng"), "grants")) == 61
    assert len(_through(browser, address("group", organization="acme", id="ops"), "users")) == 60


def test_unknown_ids_get_suggestions(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    for path, near in (
        (address("user", id="addaa"), "ada"),
        (address("folder", organization="acme", id="midle"), "middle"),
        (address("document", organization="acme", id="plans"), "plan"),
        (address("group", organization="acme", id="engg"), "eng"),
        (address("organization", id="acm"), "acme"),
    ):
        html = browser.get(path)
        assert browser.status == 404
        assert f"{near}<" in html.partition("Similar")[2], path


WAYS = [
    ("organization", "id={}"),
    ("folder", "organization=acme&id={}"),
    ("folder", "organization={}&id=top"),
    ("document", "organization=acme&id={}"),
    ("user", "id={}"),
    ("user", "id=ada&organization={}"),
    ("group", "organization=acme&id={}"),
    ("told", "kind=document&organization=acme&item={}"),
]
ODD_IDS = ("%00", "%ED%A0%80", "x" * 512, "%E2%80%AE", "..%2F..%2Fx", "%3Cscript%3E", "", "%ff%fe")


@pytest.mark.parametrize(("page", "way"), WAYS)
def test_odd_ids_end_in_a_page(full: Office, page: str, way: str) -> None:
    browser = full.browser(Role.ADMIN)
    for odd in ODD_IDS:
        path = f"/console/{page}?{way.format(odd)}"
        html = browser.get(path)
        known = page == "told" or "id=ada" in way
        assert browser.status in ({200, 400, 404} if known else {400, 404}), path
        assert 'href="/console/' in html
        assert "<script>" not in html


def test_a_cursor_of_a_group_that_is_not_listed_ends_the_list(full: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("app.service.console.pages.users", "app.access.browse.grants"):
        monkeypatch.setattr(f"{module}.MAX_GROUPS", 1)
    browser = full.browser(Role.VIEWER)
    checksum = f"{crc32(json.dumps(['bob', 'acme']).encode()):08x}"
    for group, rows in (("", 1), ("eng", 0), ("nothing", 0)):
        after = json.dumps(["groups", checksum, group]) if group else ""
        html = browser.get(address("user", id="bob", organization="acme", after=after))
        assert (browser.status, len(_rows(html, "groups"))) == (200, rows)


def test_a_cursor_of_another_list_is_refused(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    html = browser.get(address("organization", id="acme"))
    place = re.search(r'href="[^"]*after=([^"]+)">Next page', html)
    assert place is not None
    for path in (
        f"/console/organization?id=other&after={place[1]}",
        f"/console/browse?after={place[1]}",
        f"/console/user?id=ada&after={place[1]}",
        "/console/organization?id=acme&after=" + "[" * 3000,
        "/console/organization?id=acme&after=%5B%22contents%22%5D",
        "/console/organization?id=acme&after=%5B1%2C2%5D",
        "/console/organization?id=acme&after=x",
    ):
        html = browser.get(path)
        assert browser.status == 400, path
        assert 'href="/console/' in html


def test_hostile_names_are_text_everywhere(full: Office) -> None:
    browser = full.browser(Role.ADMIN)
    for path in (
        address("organization", id="acme", list="members", q="script"),
        address("folder", organization="acme", id="deep"),
        address("folder", organization="acme", id="middle"),
        address("document", organization="acme", id="plan"),
        address("user", id=HOSTILE),
        address("ledger_item", kind="folderUser", organization="acme", container="deep", item=HOSTILE),
    ):
        html = browser.get(path)
        assert browser.status == 200, path
        assert "<script>alert" not in html, path
        assert "\u202e" not in html, path
        assert "‹U+202E›" in html, path


def test_a_ledger_item_shows_its_state_and_history(full: Office) -> None:
    html = full.browser(Role.VIEWER).get(
        address("ledger_item", kind="documentUser", organization="acme", container="plan", item="ada")
    )
    assert "No run with this item is stored" in html


def test_a_search_finds_names_addresses_and_ids(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    html = browser.get("/console/")
    assert re.search(r'<form class="search"[^>]*action="/console/search">', html)
    rows = _rows(browser.get(address("search", q="NAME OF ada")), "user")
    assert rows[0].startswith("Name of ada ada ada@acme.example")
    assert len(rows) == 1
    assert len(_rows(browser.get(address("search", q="user-00")), "user")) == 10
    html = browser.get(address("search", q="document"))
    assert len(_rows(html, "document")) == 20
    assert "There are more than 20" in html
    assert "Group eng" in _rows(browser.get(address("search", q="eng")), "group")[0]
    assert "Acme acme" in _rows(browser.get(address("search", q="acme")), "organization")[0]
    assert "The middle" in _rows(browser.get(address("search", q="middle")), "folder")[0]
    assert HOSTILE in _rows(browser.get(address("search", q=HOSTILE)), "user")[0].replace("‹U+202E›", "\u202e")
    html = browser.get(address("search", q="zzz"))
    assert "<h1>Nothing named zzz</h1>" in html
    assert "Searched for records with <code" in html
    assert "Type more characters" in browser.get(address("search", q="z"))


def test_all_results_of_one_kind_have_pages(full: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = full.browser(Role.VIEWER)
    here = address("search", q="document", kind="document")
    assert f'href="{here.replace("&", "&amp;")}">All documents named document</a>' in browser.get(
        address("search", q="document")
    )
    html = browser.get(here)
    assert len(_rows(html, "document")) == 50
    assert 'id="folder"' not in html
    rows = _through(browser, here, "document")
    assert len(rows) == len(set(rows)) == 120
    assert "There are more" not in html
    monkeypatch.setattr("app.service.console.pages.search._MAX_OF_ONE_KIND", 80)
    assert len(_through(browser, here, "document")) == 80
    last = re.findall('after=([^"]*)"', html)[0]
    assert "There are more. Type more of the name." in browser.get(f"{here}&after={last}")
    for kind, code in (("", 400), ("folder", 400), ("grant", 400)):
        browser.get(f"{address('search', q='document', kind=kind)}&after={last}")
        assert browser.status == code
    monkeypatch.setattr("app.service.console.pages.search._MAX_OF_ONE_KIND", 40)
    browser.get(f"{here}&after={last}")
    assert browser.status == 400


def test_exact_ids_of_any_length_are_found(office: Office) -> None:
    long = "z" * 500
    ids = ("q", "7", "#", "é", long)
    rows: list[Record] = [Organization(organization_id=one, organization_name=f"Organization {one}") for one in ids]
    for one in ids:
        rows.append(User(user_id=one, name=f"User {one}", email=""))
        for within in ("q", "7"):
            rows.append(Folder(organization_id=within, folder_id=one, folder_name=f"Folder {one}"))
            rows.append(Document(organization_id=within, document_id=one, document_name=f"Document {one}"))
            rows.append(Group(organization_id=within, organization_user_group_id=one, group_name=f"Group {one}"))
    # What begins alike in the letters that are kept of it, and comes first.
    rows += [
        Document(organization_id="7", document_id=long[:100] + f"{n:03}", document_name="alike") for n in range(150)
    ]
    with Refresh(office.engine, clock=office.time, problems=ProblemList()) as refreshing:
        refreshing.begin(["people"])
        for row in rows:
            refreshing.staging.add(row, "here")
        refreshing.staging.end(ReadResult(records=len(rows)))
        refreshing.finish(accept_shrink=["people"])
    browser = office.browser(Role.VIEWER)
    for one in ids:
        html = browser.get(address("search", q=one))
        for kind, found in (("user", 1), ("organization", 1), ("folder", 2), ("document", 2), ("group", 2)):
            exact = [row for row in _rows(html, kind) if f"{kind.capitalize()} {one[:8]}" in row]
            assert len(exact) == found, (one[:10], kind)
    assert "Records with exactly this id" in browser.get(address("search", q="q"))
    assert "Type more characters" in browser.get(address("search", q="y"))


def test_records_without_effect_are_listed_with_the_reason(office: Office) -> None:
    acme: dict[str, Any] = {"organization_id": "acme"}
    rows: list[Record] = [
        Organization(**acme, organization_name="Acme"),
        *(User(user_id=one, name=one, email="") for one in ("ada", "bob")),
        *(Membership(**acme, user_id=one) for one in ("ada", "bob")),
        *(Group(**acme, organization_user_group_id=one, group_name=one) for one in ("eng", "ops", "all")),
        *(GroupMember(**acme, organization_user_group_id=one, user_id="ada") for one in ("eng", "ops")),
        GroupMember(**acme, organization_user_group_id="eng", user_id="bob"),
        *(GroupMember(**acme, organization_user_group_id="all", member_group_id=one) for one in ("eng", "ops")),
        Folder(**acme, folder_id="top", folder_name="Top"),
        Folder(**acme, folder_id="low", folder_name="Low", parent_folder_id="top"),
        Folder(**acme, folder_id="loop", folder_name="Loop", parent_folder_id="loop 2"),
        Folder(**acme, folder_id="loop 2", folder_name="Loop", parent_folder_id="loop"),
        Document(**acme, document_id="memo", document_name="Memo", folder_id="low"),
        Document(**acme, document_id="note", document_name="Note"),
        *(Grant(**acme, folder_id="low", user_id=one) for one in ("ada", "bob")),
        *(Grant(**acme, document_id="note", user_id=one) for one in ("ada", "bob")),
        *(Grant(**acme, document_id="note", organization_user_group_id=one) for one in ("eng", "ops")),
    ]
    with Refresh(office.engine, clock=office.time, problems=ProblemList()) as refreshing:
        refreshing.begin(["people"])
        for row in rows:
            refreshing.staging.add(row, "here")
        refreshing.staging.end(ReadResult(records=len(rows)))
        refreshing.finish(accept_shrink=["people"])
    browser = office.browser(Role.VIEWER)
    people = _rows(browser.get(address("group", organization="acme", id="all")), "users")
    assert [row.split(" through ")[1].split(" ")[0] for row in people] == ["eng", "eng"], "ada is in ops too"
    gone = ((USER, "user_id", "bob"), (GROUP, "organization_user_group_id", "ops"), (FOLDER, "folder_id", "top"))
    with writing(office.engine) as connection:
        for table, column, one in gone:
            connection.execute(delete(table).where(table.c[column] == one))

    def marked(html: str, list_id: str, why: str) -> set[str]:
        return {row.split(" ")[0] for row in _rows(html, list_id) if f"no effect: its {why} is unknown" in row}

    page = browser.get(address("organization", id="acme", list="members"))
    assert marked(page, "members", "user") == {"bob"}
    page = browser.get(address("group", organization="acme", id="eng"))
    assert marked(page, "users", "user") == {"bob"}
    page = browser.get(address("group", organization="acme", id="all"))
    assert marked(page, "inside", "group") == {"ops"}
    # Ada is in it through eng.
    assert marked(page, "users", "group") == set()
    assert {row.split(" ")[0] for row in _rows(page, "users")} == {"ada", "bob"}
    rows_of_note = _rows(browser.get(address("document", organization="acme", id="note")), "reaching")
    assert [("ops" in row or "bob" in row) for row in rows_of_note] == ["no effect" in row for row in rows_of_note]
    assert len(rows_of_note) == 4
    page = browser.get(address("folder", organization="acme", id="low"))
    assert "A folder above it is not in the directory" in _words(page)
    assert "no effect: its folder, or one above it, is unknown" in _rows(page, "contents")[0]
    assert all("its folder, or one above it, is unknown" in row for row in _rows(page, "reaching"))
    page = browser.get(address("user", id="ada", organization="acme"))
    grants = _rows(page, "grants")
    assert ["no effect" in row for row in grants] == ["Low" in row for row in grants]
    found = _rows(browser.get(address("access", user="ada", organization="acme", q="lo")), "without")
    assert len(found) == 3
    assert ["a folder above it is missing" in row for row in found] == ["Low" in row for row in found]
    assert ["the folders above it form a cycle" in row for row in found] == ["Loop" in row for row in found]
    # Nobody is in a group that is unknown.
    assert not any("ops" in row for row in [*_rows(page, "groups"), *grants])
    assert "its folder, or one above it, is unknown" in _rows(browser.get(address("search", q="memo")), "document")[0]


def test_lists_of_access_show_every_page(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    of_bob = address("access", user="bob", organization="acme")
    rows = _through(browser, of_bob, "access")
    assert len(rows) == 1 + 3 + 121
    assert rows[0].startswith("organization Acme acme viewer as a member, without a grant")
    assert [row for row in rows if row.startswith("document The plan plan The top / The middle / <script")]
    assert [row.split(" ")[1] for row in rows[1:7]] == [
        "The",
        "The",
        "<script>alert(1)</script>\"'‹U+202E›&amp;",
        "Document",
        "Document",
        "Document",
    ]
    assert "What Name of bob bob can open Export as CSV Folders 3 Documents 121" in _words(browser.get(of_bob))
    assert 'href="/console/access?user=bob&amp;organization=acme"' in browser.get(address("user", id="bob"))
    html = browser.get(address("access", organization="acme", type="document", resource="plan"))
    assert "Only users with a grant can open this document, because it is restricted." in _words(html)
    assert [row.split(" ")[3] for row in _rows(html, "access") if row.startswith("Name of a")] == ["ada"]
    html = browser.get(address("access", organization="acme", type="document", resource="nothing"))
    assert "Access is denied: organization acme has no document nothing." in _words(html)


def test_members_without_a_grant_are_named_and_listed(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    html = browser.get(address("access", organization="acme", type="organization", resource="acme"))
    assert "Members can open their organization. The directory has 63 memberships, ended" in _words(html)
    html = browser.get(address("access", organization="acme", type="document", resource="d-000"))
    assert "Members of Acme can open this document without a grant , because it is open to members." in _words(html)
    # Everybody but cleo is a member; 60 have grants of their own, and bob one of his own, too.
    assert "Users 63 As editor 1 As viewer 62 By a grant 61 Without a grant 2" in _words(html)
    assert "group Group eng eng 1 user this document editor" in " ".join(_rows(html, "reasons"))
    html = browser.get(address("document", organization="acme", id="d-000"))
    assert "Without a grant open to members" in _words(html)


def test_a_page_of_access_whose_place_is_gone_is_refused(full: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = full.browser(Role.VIEWER)
    html = browser.get(address("access", user="bob", organization="acme"))
    link = re.search(r'href="([^"]+)">Next page', html)
    assert link is not None
    next_page = unescape(link[1])
    last = re.findall(r"d-\d{3}", next_page)[-1]
    refused = browser.get(next_page.replace(last, "d-999"))
    assert (browser.status, "start from its first page" in refused) == (400, True)
    # The list has become too long for the order of names. Lists in a small organization are counted completely.
    monkeypatch.setattr("app.service.console.pages.access._COUNT_LIMIT", 100)
    assert "Folders 3 Documents 121" in _words(browser.get(address("access", user="bob", organization="acme")))
    monkeypatch.setattr("app.service.console.pages.access._COUNTED_SIZE", 0)
    browser.get(next_page)
    assert browser.status == 400


def test_lists_of_access_give_reasons(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    rows = _rows(browser.get(address("access", user="ada", organization="acme")), "reasons")
    assert rows == [
        "own grant document The plan plan viewer",
        "own grant folder The top top and everything in it editor",
        "membership whatever is open to members of Acme viewer",
    ]
    rows = _rows(browser.get(address("access", user="cleo", organization="acme")), "reasons")
    assert [row.split(" ")[0:2] for row in rows] == [["own", "grant"], ["no", "grant"]]
    assert "whatever is public viewer" in rows[1]
    rows = _rows(browser.get(address("access", organization="acme", type="document", resource="plan")), "reasons")
    assert rows[0].startswith("grant to Name of ada ada this document viewer")
    assert [row for row in rows if row.startswith("group Group eng eng 1 user folder The middle middle editor")]


@pytest.mark.parametrize("counted", [350, 10])
def test_lists_of_access_are_searched_and_filtered(full: Office, monkeypatch: pytest.MonkeyPatch, counted: int) -> None:
    """Also a list that is too long to be counted."""
    monkeypatch.setattr("app.service.console.pages.access._COUNTED_SIZE", 0)
    monkeypatch.setattr("app.service.console.pages.access._COUNT_LIMIT", counted)
    browser = full.browser(Role.VIEWER)
    plan = {"organization": "acme", "type": "document", "resource": "plan"}
    html = browser.get(address("access", **plan, q="name of"))
    assert {row.split(" ")[3] for row in _rows(html, "access")} >= {"ada", "bob"}
    assert all("restricted, and no grant" in row for row in _rows(html, "without"))
    html = browser.get(address("access", **plan, q="user-00"))
    assert "Nobody with this name can open it." in html
    assert len(_rows(html, "without")) == 10
    of_bob = {"user": "bob", "organization": "acme"}
    assert len(_rows(browser.get(address("access", **of_bob, q="plan")), "access")) == 1
    for filters, number in (({"kind": "folder"}, 3), ({"kind": "document"}, 121), ({"role": "editor"}, 63)):
        assert len(_through(browser, address("access", **of_bob, **filters), "access")) == number, filters
    browser.get(address("access", **plan, kind="folder"))
    assert browser.status == 400


def test_a_list_of_access_is_exported_as_csv(full: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.service.console.pages.access._ROWS_PER_READ", 50)
    browser = full.browser(Role.VIEWER)
    asked = {"user": "bob", "organization": "acme"}
    rows = list(csv.DictReader(browser.get(address("access_csv", **asked)).splitlines()))
    assert browser.answer is not None
    assert browser.answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert browser.answer.headers["Content-Disposition"] == "attachment; filename=access-user-bob.csv"
    shown = _through(browser, address("access", **asked), "access")
    assert len(rows) == len(shown)
    assert {(row["id"], row["role"]) for row in rows} == {
        (row["id"], row["role"]) for row in rows if any(row["id"] in line and row["role"] in line for line in shown)
    }
    plan = next(row for row in rows if row["id"] == "plan")
    assert (plan["role"], plan["rule"], plan["groups"], plan["granted_on"]) == (
        "editor",
        "group_grant",
        "eng",
        "folder middle",
    )
    browser.get(address("access_csv", organization="acme", type="document", resource="nothing"))
    assert browser.status == 404


def test_the_export_defuses_formulas(office: Office) -> None:
    names = ("=1+1", "+1", "-1", "@a", "plain", 'a "b", c')
    rows: list[Record] = [
        Organization(organization_id="acme", organization_name="Acme"),
        *(User(user_id=f"u{number}", name=name, email="") for number, name in enumerate(names)),
        *(Membership(organization_id="acme", user_id=f"u{number}") for number in range(len(names))),
    ]
    with Refresh(office.engine, clock=office.time, problems=ProblemList()) as refreshing:
        refreshing.begin(["people"])
        for row in rows:
            refreshing.staging.add(row, "here")
        refreshing.staging.end(ReadResult(records=len(rows)))
        refreshing.finish(accept_shrink=["people"])
    asked = {"organization": "acme", "type": "organization", "resource": "acme"}
    lines = office.browser(Role.VIEWER).get(address("access_csv", **asked)).splitlines()
    assert [row["name"] for row in csv.DictReader(lines)] == ["'=1+1", "'+1", "'-1", "'@a", "plain", 'a "b", c']


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"user": "ada"},
        {"organization": "acme"},
        {"user": "ada", "organization": "acme", "type": "document", "resource": "plan"},
        {"organization": "acme", "type": "document"},
        {"organization": "acme", "type": "context", "resource": "plan"},
        {"user": "a\0b", "organization": "acme"},
        {"user": "ada", "organization": "acme", "after": '["access","00000000","document","x"]'},
    ],
)
def test_wrong_questions_for_lists_of_access(full: Office, query: dict[str, str]) -> None:
    browser = full.browser(Role.VIEWER)
    browser.get(address("access", **query))
    assert browser.status == 400
