"""Requests with odd framing: none occupies a thread, gets two responses, or reaches another path."""

import contextlib
import time

import pytest
import requests

from tests.attack.conftest import ADMIN_TOKEN, BODY, Target, read_all
from tests.ports import HOST

pytestmark = [pytest.mark.e2e, pytest.mark.external, pytest.mark.timeout(120), pytest.mark.xdist_group("attack")]

THREADS = 2


def unfinished(path: str, *lines: str, body: bytes = b"") -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode() + body


ODD = {
    "identity, chunked": (["Transfer-Encoding: identity, chunked"], b"5\r\n1"),
    "gzip, chunked": (["Transfer-Encoding: gzip, chunked"], b"5\r\n1"),
    "a length with zeros": (["Content-Length: 0000000000000000000010"], b"1"),
    "a long chunk line": (["Transfer-Encoding: chunked"], b"5;" + b"e" * 4000),
    "a chunk without its end": (["Transfer-Encoding: chunked"], b"5\r\n12345"),
    "half a trailer": (["Transfer-Encoding: chunked"], b"0\r\na: b\r\n"),
}


@pytest.mark.parametrize("odd", list(ODD))
def test_incomplete_requests_occupy_no_thread(service: Target, odd: str) -> None:
    lines, body = ODD[odd]
    with contextlib.ExitStack() as stack:
        for path in ("/healthz", service.path) * (2 * THREADS):
            stack.enter_context(service.connect(unfinished(path, *lines, body=body)))
        time.sleep(0.3)
        began = time.monotonic()
        assert requests.get(service.url + "/healthz", timeout=10).status_code == 200
        assert time.monotonic() - began < 1.5


BROKEN = {
    "a forbidden trailer": b"2\r\n{}\r\n0\r\nAuthorization: x\r\n\r\n",
    "a chunk size that is none": b"0x3\r\n{} \r\n0\r\n\r\n",
    "a chunk that is too long": b"2\r\n{}}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("broken", list(BROKEN))
def test_one_request_has_one_response(service: Target, broken: str) -> None:
    answer = service.exchange(unfinished("/resync", "Transfer-Encoding: chunked", body=BROKEN[broken]))
    assert answer.count(b"HTTP/1.1 ") == 1, answer
    # nginx drops trailers, so the first is a request without credentials.
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 401 ")), answer


@pytest.mark.parametrize("path", ["/healthz", "/resync"])
def test_request_after_an_unread_body_is_answered(service: Target, path: str) -> None:
    unread = unfinished(
        path, "Transfer-Encoding: chunked", body=b"100000\r\n%b\r\n0\r\na: b\r\n\r\n" % (b" " * 0x100000)
    )
    answer = service.exchange(unread + b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 ") == 2
    assert answer.count(b"HTTP/1.1 200 OK") == 1


@pytest.mark.parametrize(
    "text",
    [
        b"GET /healthz HTTP/1.1\r\n\r\n",
        unfinished("/healthz", "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"a: %b\r\n" % (b"x" * 8000) * 12,
    ],
)
def test_ambiguous_framing_is_refused(service: Target, text: bytes) -> None:
    answer = service.exchange(text)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ")), answer[:1000]


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/open/metrics", "SCRIPT_NAME: /open"),
        ("/open/healthz", "Script_Name: /open"),
        ("/open", "PATH_INFO: /metrics"),
        ("//metrics", "X: y"),
        ("//healthz", "X: y"),
        ("/%2fhealthz", "X: y"),
        ("/%2Fhealthz", "X: y"),
        ("http://x//healthz", "X: y"),
        ("///healthz", "X: y"),
    ],
)
def test_headers_and_slashes_do_not_change_the_path(service: Target, path: str, header: str) -> None:
    answer = service.exchange(f"GET {path} HTTP/1.1\r\nHost: x\r\n{header}\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 404 "), answer


def test_oversized_path_is_a_client_error(service: Target) -> None:
    answer = service.exchange(b"GET /healthz HTTP/1.1\r\nHost: x\r\nSCRIPT_NAME: /x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 "), answer


def test_header_names_with_underscores_are_distinct(service: Target) -> None:
    head = f"POST /resync HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nConnection: close\r\n"
    body = b"Content-Type: application/json\r\nContent-Length: 2\r\nIdempotency_Key: x\r\nX_Request_Id: mine\r\n\r\n{}"
    with service.connect(head.encode() + body) as peer:
        answer = read_all(peer)
    assert b"mine" not in answer


def test_tls_ends_at_the_proxy(service: Target) -> None:
    url = f"https://{HOST}:{service.tls_port}{service.path}"
    answer = requests.post(url, data=BODY, headers=service.json_headers, verify=service.ca_file, timeout=10)
    assert answer.status_code == 200, answer.text
