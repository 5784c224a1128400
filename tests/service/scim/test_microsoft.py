"""The endpoint passes the 25 tests that Microsoft publishes for the gallery of Entra ID (``microsoft.yaml``)."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.service.scim.conftest import TOKEN, Directory

CASES = yaml.safe_load(Path(__file__).with_name("microsoft.yaml").read_text("utf-8"))

_SCHEMAS = {
    "/Users": "urn:ietf:params:scim:schemas:core:2.0:User",
    "/Groups": "urn:ietf:params:scim:schemas:core:2.0:Group",
}


def test_there_are_25() -> None:
    assert len({case["test"] for case in CASES}) == 25


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["test"])
def test_of_microsoft(directory: Directory, case: dict[str, Any]) -> None:
    ids: dict[str, str] = {}
    for step in case["steps"]:
        for number in range(step.get("times", 1)):
            _take(directory, _filled(step, {**ids, "$n": str(number)}), ids)


def _filled(step: dict[str, Any], values: dict[str, str]) -> dict[str, Any]:
    text = json.dumps({name: inner for name, inner in step.items() if name != "keep"})
    for name, value in values.items():
        text = text.replace(name, value)
    return dict(json.loads(text)) | {name: step[name] for name in step if name == "keep"}


def _take(directory: Directory, step: dict[str, Any], ids: dict[str, str]) -> None:
    method, path = step["call"].split()
    query = step.get("query", {}) | ({"filter": step["filter"]} if "filter" in step else {})
    body = step.get("body")
    if body is not None:
        body = {"schemas": [_SCHEMAS[path]], **body}
    if "patch" in step:
        operations = [one | step.get("with", {}) for one in step["patch"]]
        body = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], "Operations": operations}
    answer = directory.call(method, path, body, query_string=query, token=step.get("token", TOKEN))
    assert answer.status_code == step.get("status", 200), answer.text
    found = answer.get_json(force=True) if answer.data else {}
    if "keep" in step:
        ids[step["keep"]] = found["id"]
        step = _filled(step, ids)
    _check(found, step.get("answer", {}), step["call"])
    for schema, names in step.get("attributes", {}).items():
        assert set(names) <= _attributes(found, schema)
    for key in ("may", "not"):
        assert key not in step or directory.may(*step[key]) is (key == "may")


def _check(found: Any, expected: Any, place: str) -> None:
    """Whether a response has these parts; None: absent or empty."""
    if expected is None:
        assert not found, place
    elif isinstance(expected, dict):
        for name, inner in expected.items():
            _check((found or {}).get(name), inner, f"{place} {name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for one, inner in zip(found, expected, strict=True):
            _check(one, inner, place)
    else:
        assert found == expected, place


def _attributes(schemas: Any, schema: str) -> set[str]:
    (found,) = (one for one in schemas["Resources"] if one["id"] == schema)
    # Every resource has it, so that the schemas of the specification do not name it.
    names = {"externalId"}
    for one in found["attributes"]:
        names |= {one["name"], *(f"{one['name']}.{inner['name']}" for inner in one.get("subAttributes", ()))}
    return names
