"""The folder in which processes share their counters."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SCRIPT = """
import sys
from pathlib import Path
from app.monitoring.counters import VARIABLE, counters_are_shared, share_counters
with share_counters(sys.argv[1]) as place:
    assert counters_are_shared()
    from app.monitoring.metrics import Metrics
    metrics = Metrics()
    metrics.requests.labels("GET", "/", "200").inc()
    text, kind = metrics.render(shared=True)
    assert b'usher_http_requests_total{code="200",method="GET",route="/"} 1.0' in text, text
    print(place)
    print(sorted(path.name for path in Path(place).glob("*.db")))
assert not counters_are_shared()
"""


def share(directory: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, directory], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_counters_of_a_temporary_place_are_gone_afterwards() -> None:
    place, _ = share("")
    assert not Path(place).exists()


def test_counters_of_the_dead_are_removed_and_those_of_the_living_kept(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f"counter_{gone.pid}.db").write_bytes(b"")
    (tmp_path / f"counter_{os.getpid()}.db").write_bytes((8).to_bytes(4, "little") + bytes(12))
    (tmp_path / "notes.txt").write_text("mine")
    _, files = share(str(tmp_path))
    assert f"counter_{gone.pid}.db" not in files
    assert f"counter_{os.getpid()}.db" in files
    assert (tmp_path / "notes.txt").exists()
