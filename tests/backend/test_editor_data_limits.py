"""Limits of editor data: the cost of the largest content, and the refusal of larger content."""

import json
import subprocess
import sys
from typing import Any

import orjson
import pytest

from app.backend.editor import editor_data
from app.contract import limits

from .conftest import Caller

pytestmark = pytest.mark.one_database

EDITOR = {"organizationId": "acme", "documentId": "plan", "editorId": "main"}

PROGRAM = """
import resource, sys, time
from app.backend.editor import editor_data
from app.contract import limits

VALUES, NODES = limits.EDITOR_VALUES, limits.EDITOR_XML_NODES
CONTENTS = {
    "array": lambda n: [n] * VALUES,
    "array of arrays": lambda n: [[n]] * (VALUES // 2),
    "array in an array": lambda n: [[n] * (VALUES - 1)],
    "map": lambda n: {f"{'k' * 60}{key}": n for key in range(VALUES)},
    "text": lambda n: f"{n}" * limits.EDITOR_DATA_BYTES,
    "xml": lambda n: f"<b{n}/>" * NODES,
    "xml with texts": lambda n: f"<b>{n}</b>" * (NODES // 2),
    "xml with attributes": lambda n: f"<b a='{n}'/>" * (NODES // 2),
}
name = sys.argv[1]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.process_time()
kind = name.split()[0]
state = editor_data.new_state(kind, "content", CONTENTS[name](1), 1)
for number in (2, 3):
    state = editor_data.changed_state(state, kind, "content", CONTENTS[name](number), number)
assert editor_data.value_of(state, kind, "content") == CONTENTS[name](3).replace("'", '"') if kind == "xml" else True
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, time.process_time() - began)
"""


@pytest.mark.extended
@pytest.mark.parametrize(
    "name",
    [
        "array",
        "array of arrays",
        "array in an array",
        "map",
        "text",
        "xml",
        "xml with texts",
        "xml with attributes",
    ],
)
def test_the_largest_content_is_written_and_changed_within_bounds(name: str) -> None:
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import resource\nresource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n{PROGRAM}",
            name,
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    megabytes, seconds = map(float, ran.stdout.split())
    assert megabytes < 150
    # At most two on an idle machine.
    assert seconds < 10


@pytest.mark.parametrize(
    ("kind", "largest", "beyond", "message"),
    [
        (
            "array",
            [0] * limits.EDITOR_VALUES,
            [0] * (limits.EDITOR_VALUES + 1),
            "data: data must hold at most 50000 values",
        ),
        (
            "map",
            {"a": [{}] * (limits.EDITOR_VALUES - 1)},
            {"a": [{}] * limits.EDITOR_VALUES},
            "data: data must hold at most 50000 values",
        ),
        (
            "xml",
            "<a b='c'>d</a>" * 3333 + "e",
            "<a b='c'>d</a>" * 3333 + "e<f/>",
            "data.data: must have at most 10000 elements, texts and attributes",
        ),
        (
            "text",
            "é" * (limits.EDITOR_DATA_BYTES // 2 - 1),
            "é" * (limits.EDITOR_DATA_BYTES // 2) + "a",
            "data: data must be at most 4194304 bytes long as JSON",
        ),
    ],
    ids=["array", "map", "xml", "text"],
)
def test_contents_have_limits(tenant: Caller, kind: str, largest: Any, beyond: Any, message: str) -> None:
    tenant("add_crdt_data", **EDITOR, data=largest, type=kind)
    assert tenant("get_crdt_data", **EDITOR)[0]["data"] == (largest.replace("'", '"') if kind == "xml" else largest)
    refused = (400, "INVALID_ARGUMENT", message)
    assert tenant.refused("update_crdt_data", **EDITOR, data=beyond, type=kind) == refused
    assert tenant.refused("add_crdt_data", **EDITOR | {"editorId": "b"}, data=beyond, type=kind) == refused


def test_traces_of_overwritten_content_count_towards_the_size(tenant: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(editor_data, "STATE_BYTES", 4000)
    tenant("add_crdt_data", **EDITOR, data={str(key): 0 for key in range(100)}, type="map")
    last = None
    for number in range(1, 100):
        data = {str(key): number if key % 2 == number % 2 else 0 for key in range(100)}
        response = tenant.call("update_crdt_data", **EDITOR, data=data, type="map")
        if response.status_code != 200:
            assert orjson.loads(response.data)["error"]["status"] == "RESOURCE_EXHAUSTED"
            break
        last = data
    else:
        pytest.fail("it grew without end")
    assert json.dumps(tenant("get_crdt_data", **EDITOR)[0]["data"], sort_keys=True) == json.dumps(last, sort_keys=True)
