"""Requests and searches in the forms that Microsoft Entra ID and Okta send."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.service.scim.conftest import Directory

Case = dict[str, Any]


def _cases(file: str) -> list[Case]:
    return list(yaml.safe_load((Path(__file__).parent / file).read_text(encoding="utf-8")))


@pytest.fixture
def ids(directory: Directory) -> dict[str, str]:
    ada, bob = directory.user("ada"), directory.user("bob", externalId="Ext-B")
    return {"$ada": ada, "$bob": bob, "$acme": directory.group("acme", ada)}


def _filled(case: Case, ids: dict[str, str]) -> Case:
    text = json.dumps(case)
    for name, value in ids.items():
        text = text.replace(name, value)
    return dict(json.loads(text))


@pytest.mark.parametrize("case", _cases("request_forms.yaml"), ids=lambda case: case["name"])
def test_request_form(directory: Directory, ids: dict[str, str], case: Case) -> None:
    case = _filled(case, ids)
    directory.patch(case["path"], *case["patch"])
    found = directory.call("GET", case["path"]).get_json()
    for name, value in case.get("get", {}).items():
        assert found.get(name) == value
    if "members" in case:
        assert sorted(one["value"] for one in found.get("members", ())) == sorted(case["members"])
        for user in ("$ada", "$bob"):
            assert directory.may(ids[user], found["displayName"]) == (ids[user] in case["members"])


@pytest.mark.parametrize("case", _cases("searches.yaml"), ids=lambda case: str(case.get("filter", case)))
def test_search(directory: Directory, ids: dict[str, str], case: Case) -> None:
    case = _filled(case, ids)
    path, found, status = case.pop("path"), case.pop("found", []), case.pop("status", 200)
    answer = directory.call("GET", path, query_string=case)
    assert answer.status_code == status, answer.text
    if status == 200:
        resources = answer.get_json().get("Resources", [])
        assert [one.get("userName") or one.get("displayName") for one in resources] == found
        assert not any("members" in one for one in resources if "excludedAttributes" in case)
    else:
        assert answer.get_json()["scimType"] == "invalidFilter"
