"""Suggestions while typing: one JSON resource for all fields."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from app.service.console.settings import Role
from app.service.console.urls import address
from tests.conftest import DATABASES
from tests.service.console.conftest import Browser, Office, standing_office

HOSTILE = '\u202e<b>Eve</b> & "co"'


def _directory() -> dict[str, list[dict[str, Any]]]:
    """Two organizations with documents of the same name, and users with aliases and hostile names."""
    return {
        "organizations": [
            {"organizationId": "acme", "organizationName": "Acme"},
            {"organizationId": "globex", "organizationName": "Globex"},
        ],
        "users": [
            {"userId": "u1", "name": "Bjarne Haddad", "email": "bjarne@acme.example", "aliases": ["ACME\\bjh"]},
            {"userId": "u2", "name": "Farah Haddad", "email": "farah@acme.example"},
            {"userId": "eve", "name": HOSTILE, "email": ""},
        ],
        "groups": [{"organizationId": "acme", "organizationUserGroupId": "g1", "groupName": "Roadmap team"}],
        "folders": [{"organizationId": "acme", "folderId": "f1", "folderName": "Roadmaps"}],
        "documents": [
            {"organizationId": one, "documentId": "d1", "documentName": f"Roadmap of {one}"}
            for one in ("acme", "globex")
        ],
    }


@pytest.fixture(scope="module", params=DATABASES)
def company(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with standing_office(request, tmp_path_factory.mktemp("suggest"), yaml.safe_dump(_directory())) as office:
        yield office


@pytest.fixture
def browser(company: Office) -> Browser:
    return company.browser(Role.VIEWER)


def _found(browser: Browser, **query: str) -> list[dict[str, str]]:
    body = browser.get(address("suggest", **query))
    assert browser.status == 200
    assert browser.answer is not None
    assert browser.answer.content_type == "application/json"
    suggestions: list[dict[str, str]] = json.loads(body)["suggestions"]
    return suggestions


@pytest.mark.parametrize("typed", ["bjarne", "had bj", "HADDAD  bjarne", "bjarne@ac", "acme\\BJ", "u1", "u1 haddad"])
def test_a_user_is_found_by_words_address_alias_or_id(browser: Browser, typed: str) -> None:
    (one,) = _found(browser, q=typed, kind="user")
    assert (one["id"], one["name"], one["organizationId"]) == ("u1", "Bjarne Haddad", "")
    assert one["url"] == address("user", id="u1")
    assert one["detail"] == ("acme\\bjh" if "\\" in typed else "bjarne@acme.example")


def test_several_matches_are_all_offered(browser: Browser) -> None:
    assert [one["id"] for one in _found(browser, q="haddad", kind="user")] == ["u1", "u2"]
    found = [(one["kind"], one["detail"]) for one in _found(browser, q="roadmap")]
    assert found == [("document", "Acme"), ("document", "Globex"), ("folder", "Acme"), ("group", "Acme")]


def test_resources_may_be_limited_to_an_organization(browser: Browser) -> None:
    (one,) = _found(browser, q="road", kind="document", organization="globex")
    assert (one["organizationId"], one["id"]) == ("globex", "d1")
    assert _found(browser, q="globex road", kind="context", organization="globex") == [one]
    assert _found(browser, q="road", kind="document", organization="nowhere") == []
    assert len(_found(browser, q="haddad", kind="user", organization="globex")) == 2


def test_nothing_is_found_for_short_unknown_or_impossible_texts(browser: Browser) -> None:
    for typed in ("", "h", "zz", "haddad zz", "\0\0", "%%", "__"):
        assert _found(browser, q=typed) == []


def test_names_are_text_and_show_what_is_invisible(browser: Browser) -> None:
    (one,) = _found(browser, q="eve", kind="user")
    assert one["name"] == HOSTILE.replace("\u202e", "‹U+202E›")


def test_suggestions_need_a_session_and_a_known_kind(company: Office, browser: Browser) -> None:
    stranger = company.browser()
    assert stranger.client.get(address("suggest", q="haddad")).status_code == 303
    browser.get(address("suggest", q="haddad", kind="grant"))
    assert browser.status == 400


def test_misspelled_names_get_similar_ones(browser: Browser) -> None:
    similar = browser.get(address("search", q="hadad frah")).partition("Similar:")[2]
    assert "Farah Haddad" in similar
    assert ">explain</a>" in similar
    assert browser.get(address("search", q="raodmap")).partition("Similar:")[2].count("Roadmap of") == 2
    question = {"type": "document", "resource": "d1", "organization": "acme"}
    html = browser.get(address("explain", user="Bjarn Hadad", **question))
    assert "No such user" in html
    assert address("explain", user="u1", **question).replace("&", "&amp;") in html
    html = browser.get(address("explain", **question | {"user": "u1", "resource": "Raodmap of acme"}))
    assert address("explain", user="u1", **question).replace("&", "&amp;") in html
    assert "Similar" not in browser.get(address("search", q="qqqqqq"))
