"""Visits Explain, Browse and Search, with records of every kind."""

from html import unescape
from re import findall
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from pydantic import SecretStr
from sqlalchemy import delete

from app.access.source_tables import SOURCE_TABLES
from app.access.tables import ACCESS_TABLES
from app.client.settings import BackendSettings
from app.contract.operation import Answer
from app.contract.permissions import GetPermissionsRequest, Permission, UserPermissions
from app.directory.settings import DirectorySettings
from app.foundation.database.engine import writing
from app.service.console.settings import Role
from app.service.console.urls import address
from tests.service.console.conftest import Office
from tests.service.console.visitors import Visitors

PAST, LATER = "2020-01-01T00:00:00Z", "2040-01-01T00:00:00Z"
ACME = {"organizationId": "acme"}
FOLDER, GROUP, USER = (ACCESS_TABLES[kind] for kind in ("folder", "group", "user"))
MANY = 60
"""More than a page has."""


def directory() -> str:
    """A directory with long and empty lists, missing names, expiries, and disabled records."""
    crowd = [f"user-{number:02}" for number in range(MANY)]
    shut = {"organizationId": "shut"}
    void = {"organizationId": "void"}
    groups = ("inner", "outer", "lonely", "", *(f"group-{number:02}" for number in range(12)))
    written = {
        "organizations": [
            {**ACME, "organizationName": "Acme", "plan": "enterprise"},
            {**shut, "organizationName": "", "disabled": True},
            {**void, "organizationName": "Void", "accessType": "public"},
            {"organizationId": "a-lost", "organizationName": "Lost", "accessType": "restricted"},
            *({"organizationId": f"o-{number:02}", "organizationName": f"No {number}"} for number in range(MANY)),
        ],
        "users": [
            {"userId": "ada", "name": "Ada", "email": "ada@acme.example", "office": "Paris"},
            {"userId": "bob", "name": "", "email": ""},
            {"userId": "cleo", "name": "Cleo", "email": "", "aliases": ["acme\\cl"]},
            {"userId": "gone", "name": "Gone", "email": ""},
            {"userId": "q", "name": "Short", "email": ""},
            {"userId": "nobody", "name": "Nobody", "email": ""},
            *({"userId": one, "name": "Same Name", "email": f"{one}@acme.example"} for one in crowd),
        ],
        "memberships": [
            {**ACME, "userId": "ada"},
            {**ACME, "userId": "bob", "expiresAt": PAST},
            {**ACME, "userId": "gone", "expiresAt": LATER},
            {**shut, "userId": "gone", "expiresAt": LATER},
            *({**ACME, "userId": one, "accessRole": "viewer"} for one in crowd),
            *({"organizationId": f"o-{number:02}", "userId": "user-01"} for number in range(MANY)),
        ],
        "groups": [
            {**ACME, "organizationUserGroupId": one or "unnamed", "groupName": one, "cost": 7} for one in groups
        ],
        "groupMembers": [
            {**ACME, "organizationUserGroupId": "inner", "userId": "ada"},
            {**ACME, "organizationUserGroupId": "unnamed", "userId": "gone"},
            *({**ACME, "organizationUserGroupId": "outer", "memberGroupId": one} for one in ("inner", "unnamed")),
            *({**ACME, "organizationUserGroupId": "outer", "userId": one} for one in crowd),
            *({**ACME, "organizationUserGroupId": one, "userId": "user-00"} for one in groups[4:]),
        ],
        "folders": [
            {**ACME, "folderId": "top", "folderName": "The top", "accessType": "restricted", "colour": "red"},
            {**ACME, "folderId": "below", "folderName": "", "parentFolderId": "top"},
            {**ACME, "folderId": "bare", "folderName": "Bare"},
            {**shut, "folderId": "closed", "folderName": "Closed"},
        ],
        "documents": [
            {**ACME, "documentId": "plan", "documentName": "The plan", "folderId": "below", "pages": 3},
            {**ACME, "documentId": "note", "documentName": "", "accessType": "public"},
            *({**ACME, "documentId": f"d-{n:02}", "documentName": f"Document {n}"} for n in range(MANY)),
            *({**ACME, "documentId": f"f-{n:02}", "documentName": "Filed", "folderId": "below"} for n in range(MANY)),
        ],
        "grants": [
            {**ACME, "folderId": "top", "userId": "ada", "accessRole": "editor"},
            {**ACME, "folderId": "bare", "organizationUserGroupId": "unnamed"},
            {**ACME, "folderId": "bare", "organizationUserGroupId": "outer"},
            {**ACME, "folderId": "below", "userId": "bob", "accessRole": "editor", "expiresAt": PAST},
            {**ACME, "documentId": "plan", "userId": "ada", "accessRole": "viewer", "expiresAt": LATER},
            {**ACME, "documentId": "plan", "organizationUserGroupId": "inner", "accessRole": "editor"},
            {**ACME, "documentId": "plan", "organizationUserGroupId": "outer", "expiresAt": PAST},
            {**ACME, "folderId": "top", "organizationUserGroupId": "inner", "accessRole": "editor"},
            {**ACME, "documentId": "d-01", "userId": "cleo", "accessRole": "viewer"},
            *({**ACME, "documentId": "note", "userId": one, "accessRole": "viewer"} for one in crowd),
            *({**ACME, "documentId": f"d-{n:02}", "organizationUserGroupId": "inner"} for n in range(MANY)),
            *({**ACME, "documentId": f"d-{n:02}", "userId": "ada"} for n in range(MANY)),
            *({**ACME, "documentId": "d-02", "organizationUserGroupId": one} for one in groups[4:]),
            *({**ACME, "documentId": "d-03", "organizationUserGroupId": one} for one in groups[5:]),
        ],
        "contextGrants": [{**ACME, "userId": "ada", "field": "page", "value": "7"}],
    }
    return yaml.safe_dump(written)


def other_directory() -> str:
    """More of people that another source has."""
    fills = [{"userId": "ada", "initial": "AL"}, {"userId": "gone", "disabled": True}]
    return yaml.safe_dump({"fills": fills})


def visit_unread(visitors: Visitors) -> None:
    """Before the directory was ever read."""
    for page in ("explain", "browse", "sources", "search", "overview"):
        visitors.show(page)
    visitors.show("explain", user="ada", type="document", resource="plan", organization="acme")
    office = visitors.office
    without_sources = office.settings.model_copy(update={"directory": DirectorySettings()})
    for page in ("overview", "sources"):
        Visitors(Office(without_sources, office.engine, office.time, office.runs)).show(page)


def visit_browse(visitors: Visitors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record, every page of its lists, and unknown ids."""
    show = visitors.show
    _through(visitors, "browse")
    for organization in ("acme", "shut", "void"):
        for listed in ("contents", "members", "groups"):
            _through(visitors, "organization", id=organization, list=listed)
            for text in ("same", "filed", "zzz"):
                show("organization", id=organization, list=listed, q=text)
    for organization, folder in (("acme", "top"), ("acme", "below"), ("acme", "bare"), ("shut", "closed")):
        _through(visitors, "folder", organization=organization, id=folder)
    for document in ("plan", "note", "d-00", "f-00"):
        _through(visitors, "document", organization="acme", id=document)
    for user in ("ada", "bob", "cleo", "gone", "nobody", "user-01"):
        _through(visitors, "user", id=user)
    with monkeypatch.context() as patched:
        patched.setattr("app.service.console.pages.users.MAX_GROUPS", 5)
        show("user", id="user-00")
    show("user", id="ada", organization="nowhere")
    show("user", id="gone", organization="shut")
    for group in ("inner", "outer", "lonely", "unnamed"):
        _through(visitors, "group", organization="acme", id=group)
    with monkeypatch.context() as patched:
        patched.setattr("app.access.browse.by_name.MAX_BY_NAME", 5)
        for text in ("", "same", "zzz"):
            show("organization", id="acme", list="members", q=text)
            show("group", organization="acme", id="outer", q=text)
    visit_lists_of_access(visitors, monkeypatch)
    show("organization", 404, id="acm")
    show("document", 404, organization="acme", id="plans")
    show("document", 404, organization="acme")
    show("document", 404, organization="zzzzzzzzzzzz", id="qqqqqqqqqqqqqqqqqqqqqqqq")


def visit_lists_of_access(visitors: Visitors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of users and of resources, also filtered."""
    show = visitors.show
    for user in ("ada", "user-00", "bob", "cleo", "gone"):
        _through(visitors, "access", user=user, organization="acme")
    _through(visitors, "access", user="nobody", organization="nowhere")
    for kind, item in (("document", "d-00"), ("document", "f-00"), ("document", "nothing"), ("folder", "top")):
        _through(visitors, "access", organization="acme", type=kind, resource=item)
    _through(visitors, "access", organization="acme", type="document", resource="note")
    for organization in ("acme", "void"):
        _through(visitors, "access", organization=organization, type="organization", resource=organization)
    show("access", user="ada", organization="acme", q="The", kind="document")
    show("access", user="user-00", organization="acme", q="The", role="viewer")
    show("access", user="ada", organization="acme", q="zzz")
    for text in ("ada", "zzz", "Same"):
        show("access", organization="acme", type="document", resource="plan", q=text)
    with monkeypatch.context() as patched:
        patched.setattr("app.service.console.pages.access._MAX_REASONS", 100)
        show("access", user="ada", organization="acme")
        patched.setattr("app.service.console.pages.access._MAX_REASONS", 3)
        show("access", user="ada", organization="acme")
        show("access", organization="acme", type="document", resource="note")
    with monkeypatch.context() as patched:
        patched.setattr("app.service.console.pages.access._COUNTED_SIZE", 0)
        patched.setattr("app.service.console.pages.access._COUNT_LIMIT", 50)
        show("access", organization="acme", type="document", resource="note")
        show("access", user="ada", organization="acme")
        patched.setattr("app.service.console.pages.access._COUNT_LIMIT", 0)
        show("access", organization="acme", type="document", resource="plan")


def _through(visitors: Visitors, name: str, **query: str) -> None:
    """The first page, and the second of each of its lists."""
    for href in findall(r'href="([^"]*)">Next page', visitors.show(name, **query)):
        after = parse_qs(urlsplit(unescape(href)).query)["after"][0]
        visitors.show(name, **query, after=after)


def visit_records_without_effect(visitors: Visitors) -> None:
    """Lists and a search with records that refer to something unknown."""
    with writing(visitors.office.engine) as connection:
        for table, rows in ((USER, USER.c.user_id == "user-02"), (FOLDER, FOLDER.c.folder_id == "top")):
            connection.execute(delete(table).where(rows))
        connection.execute(delete(GROUP).where(GROUP.c.organization_user_group_id.in_(("inner", "group-11"))))
    for name, query in (
        ("organization", {"id": "acme", "list": "members"}),
        ("user", {"id": "ada"}),
        ("user", {"id": "user-01"}),
    ):
        _through(visitors, name, **query)
    for name, shown in (("folder", "below"), ("document", "plan"), ("document", "d-02"), ("group", "outer")):
        _through(visitors, name, organization="acme", id=shown)
    visitors.show("search", q="below")


def visit_search(visitors: Visitors, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, too little, one, many, all of one kind, similar names, and an id that is found by itself."""
    for text in ("", "z", "q", "zzz", "ada", "Same", "Acme", "The", "outer", "document", "o"):
        visitors.show("search", q=text)
    for text in ("Smae Nmae", "Documet"):
        visitors.show("search", q=text)
    _through(visitors, "search", q="Same", kind="user")
    with monkeypatch.context() as patched:
        patched.setattr("app.service.console.pages.search._MAX_OF_ONE_KIND", 20)
        visitors.show("search", q="Same", kind="user")
    visitors.show("search", q="zzz", kind="user")
    visitors.show("search", q="note")
    visitors.show("search", q="acme\\c")


def visit_explain(visitors: Visitors) -> None:
    """Every kind of answer, without a backend."""

    def ask(**changed: str) -> str:
        asked = {"user": "ada", "type": "document", "resource": "plan", "organization": "acme", **changed}
        return visitors.show("explain", **asked)

    visitors.show("explain")
    visitors.show("explain", type="folder", resource="top", organization="acme")
    for asked in (
        {"resource": "note", "user": "cleo"},
        {"user": "bob"},
        {"user": "Ada"},
        {"user": "ada", "resource": "The plan", "organization": "Acme"},
        {"type": "folder", "resource": "top"},
        {"type": "folder", "resource": "bare", "user": "gone"},
        {"type": "folder", "resource": "bare", "user": "user-00"},
        {"resource": "The plan", "organization": ""},
        {"type": "organization", "resource": "acme"},
        {"type": "context", "context": '{"page": 7}'},
        {"type": "context"},
        {"user": "Same Name"},
        {"user": "Cle"},
        {"user": "adda"},
        {"user": "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"},
        {"resource": "plans"},
        {"resource": "notx"},
        {"organization": "acmee"},
        {"organization": "shut", "resource": "closed", "type": "folder"},
        {"user": "gone"},
        {"user": "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqq", "organization": "nowhere"},
        {"at": "2019-01-01"},
        {"user": "gone", "at": "2019-01-01"},
    ):
        ask(**asked)
    visitors.show("explain", 400, user="adda", resource="Filed")
    visitors.show("explain", 400, user="", type="context", resource="x", at="soon", context="[")
    with writing(visitors.office.engine) as connection:
        connection.execute(delete(SOURCE_TABLES["membership"]))
    ask(resource="d-00", user="user-00")
    ask()


def visit_comparisons(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of the backend: equal, different, denied, and missing."""
    backend = BackendSettings(base_url="http://127.0.0.1:9", api_key=SecretStr("k"), auth_token=SecretStr("t"))
    settings = office.settings.model_copy(update={"backend": backend})
    asked: dict[str, Any] = {"user": "ada", "type": "document", "resource": "plan", "organization": "acme"}

    def compared(permission: Permission | None) -> None:
        def allow(_: GetPermissionsRequest) -> Answer[dict[str, UserPermissions]]:
            documents = {} if permission is None else {"plan": permission, "note": permission}
            return Answer(data={"ada": UserPermissions(documents=documents)}, message="")

        with monkeypatch.context() as patched:
            patched.setattr("app.commands.bootstrap.service._permission_getter", lambda _settings: allow)
            visitors = Visitors(Office(settings, office.engine, office.time, office.runs))
        browser = visitors.browsers[Role.VIEWER]
        context = {"type": "context", "context": '{"page": 7}'}
        for changed in ({}, {"ask": 1}, {"resource": "note", "ask": 1}, context | {"ask": 1}):
            browser.get(address("explain", **asked | changed))
            assert browser.status == 200, changed

    for permission in (
        Permission(access_role="viewer", expires_at=2_208_988_800),
        Permission(access_role="editor"),
        Permission(error="No access.", error_code="permission-denied"),
        None,
    ):
        compared(permission)
