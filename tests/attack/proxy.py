"""A real nginx with `config/nginx.conf`, on ports and with timeouts for tests."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import app

NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
REASON = "nginx is not installed"
CONFIG = Path(app.__file__).parents[1] / "config" / "nginx.conf"

_MAIN = """
daemon off;
{user}
worker_processes 1;
worker_rlimit_nofile 20000;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 10000; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/usher.conf;
}}
"""


@contextmanager
def nginx(folder: Path, changes: Mapping[str, str]) -> Iterator[Path]:
    """Runs nginx within the block. `changes` maps texts of the configuration to their replacements."""
    if NGINX is None:
        assert not os.environ.get("USHER_TEST_NGINX"), f"USHER_TEST_NGINX is set, and {REASON}"
        pytest.skip(REASON)
    text = CONFIG.read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    folder.mkdir()
    (folder / "usher.conf").write_text(text)
    # Its workers run as another user otherwise, who may not read the folder.
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(_MAIN.format(folder=folder, user=user))
    process = subprocess.Popen(
        [NGINX, "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf"), "-p", str(folder)]
    )
    try:
        yield folder / "error.log"
    finally:
        process.terminate()
        process.wait(20)
