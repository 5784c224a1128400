"""Simulates browsers that follow a run: each requests the changing part of its page once a second.

Runs in a separate process at low priority, because browsers run on other machines.
"""

import os
import sys
import threading
import time

import requests

from app.service.console.urls import address
from tests.bench.load import _Connection


def main(port: int, count: int, token: str, run_id: str) -> None:
    """Signs the browsers in, and polls until the process is ended."""
    os.nice(15)
    for number in range(count):
        threading.Thread(target=_follow, args=(port, number / count, token, run_id), daemon=True).start()
    while True:
        time.sleep(60)


def _follow(port: int, after: float, token: str, run_id: str) -> None:
    with requests.Session() as session:
        session.post(
            f"http://127.0.0.1:{port}/console/sign-in",
            data={"token": token},
            headers={"Sec-Fetch-Site": "same-origin"},
            allow_redirects=False,
            timeout=60,
        )
        cookies = "; ".join(f"{one.name}={one.value}" for one in session.cookies)
    asked = (
        f"GET {address('run', id=run_id)} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookies}\r\n"
        "x-fragment: 1\r\n\r\n"
    ).encode()
    connection = _Connection("127.0.0.1", port)
    # Not all in the same moment.
    due = time.perf_counter() + 1 + after
    while True:
        time.sleep(max(0.0, due - time.perf_counter()))
        connection.exchange(asked)
        due = max(due + 1, time.perf_counter())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
