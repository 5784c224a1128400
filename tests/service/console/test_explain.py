"""Tests of Explain: the decision, the ladder, similar ids, and the backend's own answer."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from itertools import pairwise
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from app.access.decision.decide import Decision, Rule
from app.access.records import AccessRole
from app.client.errors import NotReached
from app.client.settings import BackendSettings
from app.contract.operation import Answer
from app.contract.permission_call import Question
from app.contract.permissions import GetPermissionsRequest, Permission, UserPermissions
from app.service.console.backend_answer import Comparison, compare
from app.service.console.ladder import Ladder, NamedRecord, Rung
from app.service.console.ladder_layout import cut, lay_out
from app.service.console.settings import Role
from app.service.console.urls import address
from tests.conftest import DATABASES
from tests.service.console.conftest import Office, standing_office

LONG = "A name that is much longer than any box in which it might stand, and goes on and on"
NOTHING_FOR_ADA = "nothing for A name that is much longer than any bo…"
PAST = "2020-09-30T00:00:00Z"
FUTURE = "2030-01-01T00:00:00Z"


def _directory() -> dict[str, list[dict[str, Any]]]:
    """Folders three deep, a chain of six groups, and somebody for each way in or out."""
    acme = {"organizationId": "acme"}
    chain = [f"g{number}" for number in range(6)]
    return {
        "organizations": [
            {**acme, "organizationName": "Acme"},
            {"organizationId": "shut", "organizationName": "Shut", "disabled": True},
        ],
        "users": [
            {"userId": one, "name": LONG if one == "ada" else one, "email": ""}
            for one in ("ada", "bob", "cleo", "dan", "eve")
        ]
        + [{"userId": "gone", "name": "Gone", "email": "", "disabled": True}]
        + [{"userId": "fay", "name": "Fay Lovelace", "email": "fay@acme.example"}]
        + [{"userId": one, "name": "Same Name", "email": f"{one}@acme.example"} for one in ("gus", "hal")],
        "memberships": [{**acme, "userId": one, "accessRole": "viewer"} for one in ("ada", "bob", "dan", "eve", "fay")],
        "groups": [{**acme, "organizationUserGroupId": one, "groupName": one} for one in chain],
        "groupMembers": [
            {**acme, "organizationUserGroupId": "g0", "userId": "ada"},
            *({**acme, "organizationUserGroupId": outer, "memberGroupId": inner} for inner, outer in pairwise(chain)),
        ],
        "folders": [
            {**acme, "folderId": "top", "folderName": "Top"},
            {**acme, "folderId": "middle", "folderName": LONG, "parentFolderId": "top", "accessType": "restricted"},
            {**acme, "folderId": "deep", "folderName": "Deep", "parentFolderId": "middle"},
        ],
        "documents": [
            {**acme, "documentId": "plan", "documentName": "Plan", "folderId": "deep"},
            {**acme, "documentId": "open", "documentName": "Open"},
            {**acme, "documentId": "plan-9", "documentName": "The Great Plan"},
            *({"organizationId": one, "documentId": "memo", "documentName": "Memo"} for one in ("acme", "shut")),
        ],
        "grants": [
            {**acme, "folderId": "middle", "organizationUserGroupId": "g5", "accessRole": "editor"},
            {**acme, "folderId": "top", "userId": "bob", "accessRole": "editor"},
            {**acme, "folderId": "deep", "userId": "bob", "accessRole": "viewer"},
            {**acme, "documentId": "plan", "userId": "cleo", "accessRole": "editor", "expiresAt": PAST},
            {**acme, "documentId": "plan-9", "userId": "fay", "accessRole": "editor"},
            {**acme, "documentId": "open", "userId": "fay", "accessRole": "viewer", "expiresAt": FUTURE},
        ],
        "contextGrants": [{**acme, "userId": "bob", "field": "page", "value": "7"}],
    }


@pytest.fixture(scope="module", params=DATABASES)
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("explain")
    with standing_office(request, folder, yaml.safe_dump(_directory())) as office:
        yield office


def _rungs(html: str) -> list[tuple[str, str, str]]:
    """State, kind and note of each level, from the organization down."""
    pattern = r'<g class="level (\w+)">.*?<text class="tiny"[^>]*>(.*?)</text><text class="note"[^>]*>(.*?)</text>'
    found = re.findall(pattern, html, re.DOTALL)
    return [(state, unescape(kind), unescape(text)) for state, kind, text in found]


CASES = [
    (
        {"user": "ada"},
        "Allowed as editor",
        [
            ("beyond", "organization · open to members", "not checked"),
            ("beyond", "folder", "not checked"),
            ("allows", "folder · restricted", "grant decides"),
            ("passed", "folder", NOTHING_FOR_ADA),
            ("passed", "document", NOTHING_FOR_ADA.replace("any bo…", "an…")),
        ],
    ),
    (
        {"user": "bob"},
        "Allowed as viewer",
        [
            ("beyond", "organization · open to members", "not checked"),
            ("beyond", "folder", "editor grant, not reached"),
            ("beyond", "folder · restricted", "not checked"),
            ("allows", "folder", "grant decides"),
            ("passed", "document", "nothing for bob"),
        ],
    ),
    (
        {"user": "cleo"},
        "Denied",
        [
            ("passed", "organization · open to members", "no grant"),
            ("passed", "folder", "no grant"),
            ("denies", "folder · restricted", "access type decides"),
            ("passed", "folder", "no grant, inherits type"),
            ("passed", "document", "grant ended 30 Sep 2020"),
        ],
    ),
    (
        {"user": "dan", "resource": "open"},
        "Allowed as viewer",
        [
            ("allows", "organization · open to members", "access type decides"),
            ("passed", "document", "no grant, inherits type"),
        ],
    ),
    (
        {"user": "cleo", "resource": "open"},
        "Denied",
        [
            ("denies", "organization · open to members", "access type decides"),
            ("passed", "document", "no grant, inherits type"),
        ],
    ),
    (
        {"user": "dan", "type": "organization", "resource": "acme"},
        "Allowed as viewer",
        [("allows", "organization · open to members", "member")],
    ),
    (
        {"user": "bob", "type": "context", "context": '{"page": 7}'},
        "Allowed as viewer",
        [
            ("beyond", "organization · open to members", "not checked"),
            ("beyond", "folder", "editor grant, not reached"),
            ("beyond", "folder · restricted", "not checked"),
            ("allows", "folder", "grant decides"),
            ("passed", "document", "nothing for bob"),
            ("allows", "context", "context grants cover it"),
        ],
    ),
    (
        {"user": "bob", "type": "context", "context": '{"page": 8}', "resource": "open"},
        "Denied",
        [
            ("allows", "organization · open to members", "access type decides"),
            ("passed", "document", "no grant, inherits type"),
            ("denies", "context", "no context grant for page"),
        ],
    ),
    (
        {"user": "bob", "resource": "plans"},
        "No such document",
        [],
    ),
    ({"user": "dan", "organization": "shut", "resource": "x"}, "Denied", [("denies", "", "disabled")]),
    (
        {"user": "gone", "resource": "open"},
        "Denied",
        [("beyond", "", "not checked"), ("beyond", "", "not checked")],
    ),
]


@pytest.mark.parametrize(("asked", "answer", "rungs"), CASES)
def test_the_ladder_has_all_levels(
    full: Office, asked: dict[str, str], answer: str, rungs: list[tuple[str, ...]]
) -> None:
    question = {"type": "document", "resource": "plan", "organization": "acme", **asked}
    html = full.browser(Role.VIEWER).get(address("explain", **question))
    assert answer in html
    shown = _rungs(html)
    assert [(state, text) for state, _, text in shown] == [(state, text) for state, _, text in rungs]
    assert all(kind in shown[number][1] for number, (_, kind, _) in enumerate(rungs))


def test_long_chains_fold_and_long_names_are_cut_with_the_whole_in_the_title(full: Office) -> None:
    html = full.browser(Role.VIEWER).get(address("explain", user="ada", resource="plan", organization="acme"))
    assert ">4 more<" in html
    assert "<title>groups g1, g2, g3, g4</title>" in html
    assert "<title>group g5</title>" in html
    assert f"<title>folder · restricted {LONG} middle: grant decides</title>" in html
    assert html.count(LONG) >= 2
    assert "editor grant" in html


def test_sentences_and_records_show_names(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    html = browser.get(address("explain", user="fay", resource="plan-9", organization="acme"))
    user = '<a href="/console/user?id=fay&amp;organization=acme">Fay Lovelace</a> <code class="id">fay</code>'
    document = (
        '<a href="/console/document?id=plan-9&amp;organization=acme">The Great Plan</a> <code class="id">plan-9</code>'
    )
    assert f'<span class="message">{user} has a grant on document {document}.</span>' in html
    assert "The backend may cache this answer until <time" in html
    grant = re.search(
        r'<th scope="row"><span title="grant">grant</span></th><td [^>]*class="wide under"[^>]*>(.*?)</td>', html
    )
    assert grant is not None
    assert f'<span class="muted" title="userId">user</span> {user}' in grant[1]
    assert f'<span class="muted" title="documentId">document</span> {document}' in grant[1]
    assert '<span class="muted" title="accessRole">role</span> <strong>editor</strong>' in grant[1]
    # A member is a record of its own, in words.
    html = browser.get(address("explain", user="ada", resource="plan", organization="acme"))
    assert '<span title="groupMember">group member</span>' in html


def test_the_sentence_ends_with_the_end_of_the_access(full: Office) -> None:
    html = full.browser(Role.VIEWER).get(address("explain", user="fay", resource="open", organization="acme"))
    answer = html.partition('<div class="answer')[2].partition("</div>")[0]
    assert "until <time" in answer
    assert ">1 Jan 2030 00:00:00</time>.</span>" in answer


def test_groups_of_the_ladder_show_their_names() -> None:
    ladder = Ladder(
        rungs=[Rung(kind="organization", item_id="acme", name="Acme", use="grant", state="allows")],
        user=NamedRecord("ada", "Ada Lovelace"),
        groups=[NamedRecord("g1", "Engineering"), NamedRecord("g2", "")],
        link="grant",
        role="viewer",
        user_problem="",
        allows=True,
    )
    boxes = lay_out(ladder, str, lambda *_: "", str)["boxes"]
    assert [(box["shown"], box["shown_id"]) for box in boxes] == [
        ("Ada Lovelace", "ada"),
        ("Engineering", "g1"),
        ("g2", ""),
    ]
    assert [box["whole"] for box in boxes] == ["Ada Lovelace ada", "Engineering g1", "g2"]


def test_texts_are_cut_by_what_they_measure() -> None:
    assert cut("short", 200, 13) == "short"
    assert len(cut("i" * 100, 200, 13)) > len(cut("W" * 100, 200, 13)) > 5
    assert cut("漢" * 100, 130, 13).endswith("…")
    assert len(cut("漢" * 100, 130, 13)) <= 10
    assert cut("a\u202eb", 200, 13) == "a‹U+202E›b"


def test_the_organization_of_a_resource_is_found(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    for resource in ("plan", "Plan"):
        html = browser.get(address("explain", user="ada", resource=resource) + "&at=")
        assert "Allowed as editor" in html, resource
    html = unescape(browser.get(address("explain", user="ada", resource="memo")))
    assert browser.status == 400
    assert 'Choose the document: several match <code class="id">memo</code>.' in html
    for organization in ("acme", "shut"):
        question = {"user": "ada", "type": "document", "resource": "memo", "organization": organization}
        assert f'href="{address("explain", **question)}"' in html
    # An unknown one has no organization.
    html = browser.get(address("explain", user="adda", resource="nowhere"))
    assert browser.status == 400
    assert re.search("No such user and no such document</span></span> <span[^>]*>This is not", html)
    assert html.count('aria-invalid="true"') == 2


def test_unknown_ids_get_suggestions(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    html = browser.get(address("explain", user="adda", resource="plans", organization="acme"))
    assert re.search(r'href="[^"]*user=ada&amp;[^"]*resource=plans', html)
    # Both fields are wrong, and the nearest record comes first.
    assert re.search("No such user and no such document</span></span> <span[^>]*>This is not", html)
    assert html.count('aria-invalid="true"') == 2
    nearest = [unescape(link) for link in re.findall(r'class="button" href="([^"]*)"', html)]
    assert [re.findall("user=([^&]*).*resource=([^&]*)", link)[0] for link in nearest[:1]] == [("ada", "plans")]
    assert any("resource=plan&" in link for link in nearest)
    html = browser.get(address("explain", user="ada", resource="plans", organization="acme"))
    link = re.search(r'href="([^"]*resource=plan&[^"]*)"', html)
    assert link is not None
    assert "Allowed as editor" in browser.get(unescape(link[1]))
    assert "organization=acme" in browser.get(address("explain", user="ada", resource="plan", organization="acmee"))


def test_names_and_addresses_are_resolved_to_ids(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    html = browser.get(address("explain", user="FAY@acme.example", resource="the great  plan", organization="ACME"))
    assert "Allowed as editor" in html
    for typed, kind, item_id in (
        ("FAY@acme.example", "user", "fay"),
        ("the great  plan", "document", "plan-9"),
        ("ACME", "organization", "acme"),
    ):
        assert f'{typed} is {kind} <code class="id">{item_id}</code>' in html
    assert 'name="user" type="text" value="fay"' in html
    # An id comes before a name.
    assert "is user" not in browser.get(address("explain", user="bob", resource="plan", organization="acme"))


def test_ambiguous_names_are_suggested(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    html = browser.get(address("explain", user="Same Name", resource="plan", organization="acme"))
    assert "Choose the user" in html
    assert ">Denied<" not in html
    assert 'Choose the user: several match <code class="id">Same Name</code>.' in html
    assert "Only the first" not in html
    for absent in ("The path to the decision", "Records that led to it", "Ask the backend"):
        assert absent not in html
    for user in ("gus", "hal"):
        assert re.search(rf'href="[^"]*user={user}&amp;[^"]*resource=plan', html)
        assert f"Same Name, {user}@acme.example" in html
    # The beginning of a name is no name.
    html = browser.get(address("explain", user="Fay Lov", resource="plan", organization="acme"))
    assert "No such user" in html
    assert "Fay Lovelace, fay@acme.example" in html


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"user": "nobody-like-this"}, "No such user"),
        ({"resource": "nothing-like-this"}, "No such document"),
        ({"type": "folder", "resource": "nothing-like-this"}, "No such folder"),
        ({"organization": "nowhere"}, "No such organization"),
        ({"type": "organization", "resource": "", "organization": "nowhere"}, "No such organization"),
    ],
)
def test_an_unknown_id_is_not_a_decision(full: Office, asked: dict[str, str], text: str) -> None:
    question = {"user": "ada", "type": "document", "resource": "plan", "organization": "acme", **asked}
    html = full.browser(Role.VIEWER).get(address("explain", **question))
    assert text in html
    assert "This is not a decision." in html
    assert "Denied</span>" not in html


def test_an_answer_leads_to_both_lists_of_access(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    of_user, context = address("access", user="ada", organization="acme"), {"type": "context", "context": '{"page": 7}'}
    for asked, kind, resource in (
        ({}, "document", "plan"),
        (context, "document", "plan"),
        ({"type": "organization"}, "organization", "acme"),
    ):
        question = {"user": "ada", "resource": resource, "organization": "acme", **asked}
        html = unescape(browser.get(address("explain", **question) + "&at="))
        for list_of in (of_user, address("access", organization="acme", type=kind, resource=resource)):
            assert f'href="{list_of}"' in html
            browser.get(list_of)
            assert browser.status == 200


def test_missing_fields_are_reported(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    html = browser.get("/console/explain?user=&type=document&resource=x&organization=&at=yesterday")
    assert browser.status == 400
    for text in ("Enter a user.", "Enter the resource&#39;s organization.", "Not a time."):
        assert text in html
    assert html.count('aria-invalid="true"') == 3
    # A link from elsewhere fills in what it knows, and blames nobody for the rest.
    html = browser.get(address("explain", type="folder", resource="top", organization="acme"))
    assert browser.status == 200
    assert 'value="top"' in html
    assert "aria-invalid" not in html


def test_a_past_time_is_answered_from_the_records_of_today(full: Office) -> None:
    browser = full.browser(Role.VIEWER)
    asked = {"user": "cleo", "resource": "plan", "organization": "acme"}
    html = browser.get(address("explain", **asked, at="2020-01-01"))
    assert "By today&#39;s records, allowed as editor" in html
    assert "Allowed as editor" not in html
    assert "For a time in the past, today" in html
    assert "For a time in the past" not in browser.get(address("explain", **asked))
    html = browser.get(address("explain", **asked, at="2020-01-01", zone="Asia/Tokyo"))
    assert 'as of <time datetime="2019-12-31T15:00:00' in html
    assert '<input type="hidden" name="zone" value="Asia/Tokyo">' in html
    browser.get(address("explain", **asked, at="2020-01-01", zone="Mars"))
    assert browser.status == 400


def test_an_unavailable_backend_is_reported(full: Office) -> None:
    backend = BackendSettings(base_url="http://127.0.0.1:9", api_key=SecretStr("k"), auth_token=SecretStr("t"))
    settings = full.settings.model_copy(update={"backend": backend})
    browser = Office(settings, full.engine, full.time, full.runs).browser(Role.VIEWER)
    asked = address("explain", user="ada", resource="plan", organization="acme")
    assert "Ask the backend" in browser.get(asked)
    html = browser.get(f"{asked}&ask=1")
    assert browser.status == 200
    assert "The backend did not answer" in html
    assert "Allowed as editor" in html
    assert "no credentials for a backend" in full.browser(Role.VIEWER).get(asked)


QUESTION = Question("ada", "document", "plan", "acme")
ALLOWED = Decision(True, Rule.OWN_GRANT, access_role=AccessRole.EDITOR, expires_at=datetime(2030, 1, 1, tzinfo=UTC))
DENIED = Decision(False, Rule.RESTRICTED)


def _backend(permission: Permission | None) -> Any:
    def backend(request: GetPermissionsRequest) -> Answer[dict[str, UserPermissions]]:
        assert request.document_ids == ["plan"]
        documents = {} if permission is None else {"plan": permission}
        return Answer(data={"ada": UserPermissions(documents=documents)}, message="")

    return backend


def test_the_answers_are_compared() -> None:
    same = compare(_backend(Permission(access_role="editor", expires_at=1_893_456_000)), QUESTION, ALLOWED)
    assert len(same.rows) == 3
    assert not same.differs
    other = compare(_backend(Permission(access_role="viewer")), QUESTION, ALLOWED)
    assert [what for what, ours, theirs in other.rows if ours != theirs] == ["Role", "Until"]
    denied = compare(_backend(Permission(error="No access.", error_code="permission-denied")), QUESTION, ALLOWED)
    assert denied.differs
    assert denied.denial == "No access."
    assert not compare(_backend(Permission(error="No access.")), QUESTION, DENIED).differs
    assert compare(_backend(None), QUESTION, DENIED).problem

    def away(_: GetPermissionsRequest) -> Answer[dict[str, UserPermissions]]:
        raise NotReached("get_permissions", "nobody is there")

    assert compare(away, QUESTION, DENIED) == Comparison(
        problem="The backend did not answer: get_permissions: nobody is there"
    )


@pytest.mark.parametrize("expires_at", [1.8e12, 1e18, float("inf"), float("nan")])
def test_an_invalid_end_in_the_backends_answer_is_reported(expires_at: float) -> None:
    answered = compare(_backend(Permission(access_role="editor", expires_at=expires_at)), QUESTION, ALLOWED)
    assert answered == Comparison(problem="The backend's answer contains an invalid expiresAt.")


def test_ends_are_compared_in_whole_seconds() -> None:
    assert not compare(
        _backend(Permission(access_role="editor", expires_at=1_893_456_000.7)), QUESTION, ALLOWED
    ).differs


def test_a_request_that_the_backend_cannot_get_is_reported() -> None:
    def backend(_: GetPermissionsRequest) -> Answer[dict[str, UserPermissions]]:
        raise AssertionError("must not be called")

    problem = compare(backend, Question("", "document", "plan", "acme"), DENIED).problem
    assert problem.startswith("The backend cannot be asked: ")
