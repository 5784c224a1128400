"""The memory that reading a JSON body needs, measured in a separate process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.choice import sampled

pytestmark = pytest.mark.process

MB = 1024 * 1024

MADE = {
    "zeros, 30 deep": lambda n: b"[" * 30 + b"0," * ((n - 61) // 2) + b"0" + b"]" * 30,
    "objects, 29 deep": lambda n: b"[" * 29 + b"{}," * ((n - 61) // 3) + b"{}" + b"]" * 29,
    "the slow way": lambda n: b"[" * 29 + b'"\\u003a"' + b",{}" * ((n - 70) // 3) + b"]" * 29,
    "towers of objects": lambda n: b"[" + b",".join([b'{"a":' * 30 + b"0" + b"}" * 30] * (n // 182)) + b"]",
    "one text": lambda n: b'"' + b"x" * (n - 2) + b'"',
    "one text, the slow way": lambda n: b'["\\u003a","' + b"x" * (n - 15) + b'"]',
    "many texts": lambda n: b"[" + b",".join([b'"' + b"x" * 60 + b'"'] * (n // 63)) + b"]",
    "what people send": lambda n: json.dumps(
        {
            "data": {
                "users": [
                    {
                        "userId": f"user-{i}",
                        "name": f"Person {i}",
                        "email": f"person-{i}@company.example",
                        "metadata": {"note": "x" * 120},
                    }
                    for i in range(n // 260)
                ]
            }
        }
    ).encode(),
}

PROGRAM = """
import io, json, sys
from pathlib import Path
from flask import Flask, request
from app.contract.errors import InvalidArgument
from app.http.body import read_json

def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024

limit = int(sys.argv[1])
raw = Path(sys.argv[2]).read_bytes()
app = Flask("memory")
with app.test_request_context(method="POST", data=b"{}", content_type="application/json"):
    read_json(request, max_bytes=limit)
stream = io.BytesIO(raw)
environ = {"wsgi.input": stream, "wsgi.input_terminated": True, "CONTENT_LENGTH": str(len(raw))}
with app.test_request_context(method="POST", content_type="application/json", environ_overrides=environ):
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = peak()
    refused = False
    try:
        value = read_json(request, max_bytes=limit)
    except InvalidArgument as error:
        refused = error.http_code
    after = peak()
print(json.dumps({"size": len(raw), "more": after - before, "refused": refused}))
"""


def measure(folder: Path, name: str, size: int) -> dict[str, float]:
    raw = MADE[name](size)
    assert len(raw) <= size
    (folder / "body").write_bytes(raw)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(16 * MB), str(folder / "body")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured: dict[str, float] = json.loads(done.stdout)
    print(name, {key: round(value / MB, 1) if value > MB else value for key, value in measured.items()})
    return measured


@pytest.mark.parametrize(
    "name", sampled(["towers of objects", "zeros, 30 deep", "objects, 29 deep", "the slow way"], sample=1)
)
def test_a_body_that_is_all_brackets_is_refused_before_it_is_read(tmp_path: Path, name: str) -> None:
    measured = measure(tmp_path, name, 16 * MB)
    assert measured["refused"] == 413
    assert measured["more"] < measured["size"]


@pytest.mark.parametrize(
    "name", sampled(["many texts", "one text", "one text, the slow way", "what people send"], sample=1)
)
def test_a_body_costs_at_most_five_times_its_size(tmp_path: Path, name: str) -> None:
    measured = measure(tmp_path, name, 16 * MB)
    assert not measured["refused"]
    assert measured["more"] < 5 * measured["size"]
