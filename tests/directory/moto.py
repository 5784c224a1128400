"""Moto's S3 server on loopback, an independent implementation. ``make moto`` installs it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from tests.ports import free_port

MOTO = Path(sys.prefix) / "moto"
"""The installation. It is separate, because it is large and has other versions of packages."""

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "topsecret-key"}


def missing() -> str:
    """Why there is no server; empty if there is one."""
    return "" if (MOTO / "moto").is_dir() else "moto is not installed (make moto)"


@contextmanager
def running_moto(log: Path) -> Iterator[str]:
    """The URL of a server with the bucket ``bucket``."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            cwd=log.parent,
            env=os.environ | CREDENTIALS | {"PYTHONPATH": str(MOTO)},
            stdout=output,
            stderr=output,
        )
    try:
        for _ in range(300):
            assert process.poll() is None, log.read_text()
            try:
                requests.put(f"{url}/bucket", timeout=5).raise_for_status()
                break
            except requests.ConnectionError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def put(url: str, key: str, content: bytes) -> None:
    """Writes an object."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "bucket",
        endpoint=url,
        access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )
    obstore.put(store, key, content)
