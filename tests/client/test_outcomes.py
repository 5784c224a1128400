"""Outcomes and tries of calls for every kind of response, over real HTTP."""

import gzip
import logging
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import SecretStr

from app.client.client import BackendClient
from app.client.credentials import WorkspaceCredentials
from app.client.errors import (
    BackendRefused,
    ClientError,
    CredentialsRefused,
    InvalidRequest,
    NotReached,
    OperationMissing,
    OutcomeUnknown,
    RateLimited,
)
from app.client.response import UNANSWERED, item_results
from app.client.retry import RetryPolicy
from app.contract import operations
from app.contract.base import NoParameters
from app.contract.documents import DeleteDocumentsRequest
from app.contract.errors import Status
from app.contract.folders import DeleteFolderRequest
from app.contract.organizations import AddOrganizationsRequest
from app.contract.users import AddUsersRequest, DeleteUsersRequest, GetUsersRequest, User
from app.contract.workspace import CreateWorkspaceRequest

pytestmark = pytest.mark.process

ADD = AddUsersRequest.from_wire({"organizationId": "acme", "users": [{"userId": "ada"}, {"userId": "bob"}]})
DONE = {"ada": {"success": True, "id": "ada", "message": "User added."}, "bob": {"success": False, "message": "no"}}
MISSING_FOLDER = DeleteFolderRequest(organization_id="acme", folder_id="x")
ADD_ACME = AddOrganizationsRequest.from_wire({"organizations": [{"organizationId": "acme"}]})

SERVER = Any
"""The scripted server of the conftest."""


# --- Answers ---


def test_call_sends_the_request_of_the_contract(server: SERVER, client: BackendClient, script: Any) -> None:
    server.will(script.succeeds(DONE, message="2 users"))
    answer = client.call(operations.ADD_USERS, ADD)
    assert answer.message == "2 users"
    assert answer.data["ada"].success
    assert not answer.data["bob"].success
    (received,) = server.received
    assert received.path == "/v1/users/add"
    assert received.body == {"data": {"organizationId": "acme", "users": [{"userId": "ada"}, {"userId": "bob"}]}}
    assert received.headers["content-type"] == "application/json"
    assert received.headers["x-service-api-key"] == "key-of-acme-4711"
    assert received.headers["x-service-auth-token"] == "token-of-acme-0815"
    assert "x-service-workspace-id" not in received.headers


def test_call_uses_the_path_in_the_other_version(server: SERVER, client: BackendClient, script: Any) -> None:
    server.will(script.succeeds({}))
    client.call(operations.ADD_USERS, ADD, other_version=True)
    assert server.received[0].path == "/v2/users/add"


def test_call_uses_the_header_prefix_and_the_base_path(server: SERVER, connect: Any, script: Any) -> None:
    server.will(script.succeeds({}))
    connect(f"{server.url}/api/", header_prefix="X-Velvet-").call(operations.ADD_USERS, ADD)
    assert server.received[0].path == "/api/v1/users/add"
    assert server.received[0].headers["x-velvet-api-key"] == "key-of-acme-4711"


def test_call_with_workspace_credentials(server: SERVER, connect: Any, script: Any) -> None:
    workspace = WorkspaceCredentials(SecretStr("w-1"), SecretStr("w-token"))
    server.will(script.succeeds({"id": "w-1", "name": "W", "owner": {}, "authToken": "t", "apiKeyList": {}}))
    connect(server.url, parts={"workspace": workspace}).call(operations.GET_WORKSPACE, NoParameters())
    headers = server.received[0].headers
    assert (headers["x-service-workspace-id"], headers["x-service-workspace-auth-token"]) == ("w-1", "w-token")
    assert "x-service-api-key" not in headers


@pytest.mark.parametrize(
    ("settings", "operation", "body"),
    [({"api_key": ""}, operations.ADD_USERS, ADD), ({}, operations.GET_WORKSPACE, NoParameters())],
)
def test_call_without_credentials_is_not_sent(
    server: SERVER, connect: Any, settings: Any, operation: Any, body: Any
) -> None:
    client = connect(server.url, **settings)
    with pytest.raises(CredentialsRefused, match="not sent"):
        client.call(operation, body)
    assert server.received == []


def test_call_keeps_its_connection(server: SERVER, client: BackendClient, script: Any) -> None:
    server.will(script.succeeds({}, message="x"))
    ports = set()
    original = server.process_request

    def remember(request: Any, address: Any) -> None:
        ports.add(address)
        original(request, address)

    server.process_request = remember
    for _ in range(5):
        client.call(operations.ADD_USERS, ADD)
    assert len(ports) == 1


def test_pages_are_read_to_the_end(server: SERVER, client: BackendClient, script: Any) -> None:
    ada, bob = {"userId": "ada"}, {"userId": "bob"}
    server.will(script.succeeds([ada], nextPageToken="p2"), script.succeeds([bob], pageToken="p3"), script.succeeds([]))
    pages = list(client.pages(operations.GET_USERS, GetUsersRequest(organization_id="acme")))
    assert [[user.user_id for user in page.data if isinstance(user, User)] for page in pages] == [["ada"], ["bob"], []]
    assert [received.body["data"].get("pageToken") for received in server.received] == [None, "p2", "p3"]


def test_repeated_page_tokens_are_an_error(server: SERVER, client: BackendClient, script: Any) -> None:
    server.will(script.succeeds([], nextPageToken="again"))
    with pytest.raises(OutcomeUnknown, match="page token"):
        list(client.pages(operations.GET_USERS, GetUsersRequest(organization_id="acme")))
    assert len(server.received) == 2


# --- Batches ---


def results(client: BackendClient, request: AddUsersRequest = ADD) -> dict[str, tuple[bool, str | None, bool]]:
    answer = client.call(operations.ADD_USERS, request)
    found = item_results(answer.data)
    outcome = {user.user_id: found.get(user.user_id, UNANSWERED) for user in request.users}
    return {name: (item.success, item.code, item.answered) for name, item in outcome.items()}


def test_batch_reports_missing_items_and_ignores_strange_ones(
    server: SERVER, client: BackendClient, script: Any
) -> None:
    server.will(script.succeeds({"ada": {"success": True}, "zoe": {"success": True}}))
    assert results(client) == {"ada": (True, None, True), "bob": (False, None, False)}


def test_batch_keeps_what_can_be_read(server: SERVER, client: BackendClient, script: Any) -> None:
    server.will(script.succeeds({"ada": {"success": True, "message": None}, "bob": {"success": "perhaps"}}))
    assert results(client) == {"ada": (True, None, True), "bob": (False, None, False)}


def test_batch_in_the_shape_of_a_failure(server: SERVER, client: BackendClient, script: Any) -> None:
    details = {"ada": {"success": True}, "bob": {"success": False, "message": "exists", "code": "already-exists"}}
    server.will(script.fails(500, "INTERNAL", "some failed", details))
    assert results(client) == {"ada": (True, None, True), "bob": (False, "already-exists", True)}
    assert len(server.received) == 1


def test_failure_without_readable_details_is_unknown(server: SERVER, client: BackendClient, script: Any) -> None:
    server.will(script.fails(500, "INTERNAL", "all failed", {"ada": "?"}), script.succeeds({}))
    assert client.call(operations.ADD_USERS, ADD).data == {}
    assert len(server.received) == 2


def test_details_on_an_operation_that_is_no_batch_are_a_failure(
    server: SERVER, client: BackendClient, script: Any
) -> None:
    server.will(script.fails(500, "INTERNAL", "no", {"x": {"success": True}}))
    with pytest.raises(OutcomeUnknown):
        client.call(operations.DELETE_FOLDER, MISSING_FOLDER)


# --- Refusals: one try ---


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (400, Status.INVALID_ARGUMENT, InvalidRequest),
        (413, Status.INVALID_ARGUMENT, InvalidRequest),
        (400, Status.FAILED_PRECONDITION, BackendRefused),
        (401, Status.UNAUTHENTICATED, CredentialsRefused),
        (403, Status.PERMISSION_DENIED, CredentialsRefused),
        (409, Status.ALREADY_EXISTS, BackendRefused),
        (404, Status.NOT_FOUND, BackendRefused),
        (500, Status.INVALID_ARGUMENT, InvalidRequest),
        (200, Status.PERMISSION_DENIED, CredentialsRefused),
    ],
)
def test_refusal_is_raised_at_once(
    server: SERVER, *, client: BackendClient, script: Any, code: int, status: Status, kind: type[BackendRefused]
) -> None:
    server.will(script.fails(code, status, "because"))
    with pytest.raises(BackendRefused, match=f"add_users: {status}: because") as caught:
        client.call(operations.ADD_USERS, ADD)
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.http_code) == (status, code)
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("code", "kind"), [(400, InvalidRequest), (401, CredentialsRefused), (403, CredentialsRefused)]
)
def test_refusal_without_envelope_goes_by_its_code(
    server: SERVER, client: BackendClient, script: Any, code: int, kind: type[BackendRefused]
) -> None:
    server.will(script.responds(code, raw=b"<html>no</html>", Content_Type="text/html"))
    with pytest.raises(kind):
        client.call(operations.ADD_USERS, ADD)


def test_a_public_operation_has_no_credentials_to_refuse(server: SERVER, client: BackendClient, script: Any) -> None:
    server.will(script.fails(403, "PERMISSION_DENIED", "not on a paid plan"))
    with pytest.raises(BackendRefused) as caught:
        client.call(operations.CREATE_WORKSPACE, CreateWorkspaceRequest(owner_email="a@acme.example"))
    assert type(caught.value) is BackendRefused


@pytest.mark.parametrize(
    ("code", "envelope", "own"), [(404, True, True), (404, False, False), (405, False, False), (501, False, False)]
)
def test_missing_operation_of_the_extended_kind(
    server: SERVER, *, client: BackendClient, script: Any, code: int, envelope: bool, own: bool
) -> None:
    server.will(script.fails(404, "NOT_FOUND", "nothing") if envelope else script.responds(code, raw=b"Not here"))
    with pytest.raises(OperationMissing) as caught:
        client.call(operations.DELETE_FOLDER, MISSING_FOLDER)
    assert (caught.value.http_code, caught.value.has_envelope, caught.value.may_mean_missing_object) == (
        code,
        envelope,
        own,
    )
    assert len(server.received) == 1


def test_missing_operation_without_that_error_in_the_contract(
    server: SERVER, client: BackendClient, script: Any
) -> None:
    server.will(script.fails(404, "NOT_FOUND", "no such path"))
    with pytest.raises(OperationMissing) as caught:
        client.call(operations.ADD_ORGANIZATIONS, ADD_ACME)
    assert (caught.value.has_envelope, caught.value.may_mean_missing_object) == (True, False)


def test_unimplemented_means_missing(server: SERVER, client: BackendClient, script: Any) -> None:
    server.will(script.fails(501, "UNIMPLEMENTED", "later"))
    with pytest.raises(OperationMissing):
        client.call(operations.ADD_USERS, ADD)
    assert len(server.received) == 1


@pytest.mark.parametrize("code", [301, 302, 307, 308])
def test_redirect_is_not_followed(server: SERVER, client: BackendClient, script: Any, code: int) -> None:
    server.will(script.responds(code, raw=b"", Location="http://elsewhere.example/v1"))
    with pytest.raises(BackendRefused, match=r"redirects to http://elsewhere.example/v1; set backend.base_url"):
        client.call(operations.ADD_USERS, ADD)
    assert len(server.received) == 1


# --- Unknown outcomes: six tries ---


def trickles(handler: Any) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"result"')
    handler.wfile.flush()
    handler.server.released.wait(5)


def stops_early(handler: Any) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"result": {"status": "success"')
    handler.close_connection = True


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

WAITED_FOR = ("no answer in time", "answer stops half way")
"""They take as long as the timeout."""

UNKNOWN: dict[str, Callable[[Any], Any]] = {
    "500": lambda s: s.fails(500, "INTERNAL"),
    "500 with HTML": lambda s: s.responds(500, raw=b"<html>Oops</html>", Content_Type="text/html"),
    "502": lambda s: s.responds(502, raw=b"Bad Gateway"),
    "504": lambda s: s.responds(504, raw=b""),
    "408": lambda s: s.responds(408, raw=b""),
    "reset after reading": lambda _: lambda handler: handler.reset(),
    "hangs up after reading": lambda _: lambda handler: setattr(handler, "close_connection", True),
    "no answer in time": lambda _: lambda handler: handler.server.released.wait(5),
    "answer stops half way": lambda _: trickles,
    "answer cut off": lambda _: stops_early,
    "truncated JSON": lambda s: s.responds(200, raw=b'{"result": {"status": "succ'),
    "HTML": lambda s: s.responds(200, raw=b"<html>Welcome</html>", Content_Type="text/html"),
    "empty": lambda s: s.responds(200, raw=b""),
    "204": lambda s: s.responds(204, raw=b""),
    "no envelope": lambda s: s.responds(200, {"ok": True}),
    "an array": lambda s: s.responds(200, [1, 2]),
    "wrong data": lambda s: s.succeeds([1, 2, 3]),
    "an error of no known kind": lambda s: s.responds(200, {"error": {"status": "MOON_PHASE", "message": "?"}}),
    "not UTF-8": lambda s: s.responds(200, raw=b'{"result": "\xff"}'),
    "not HTTP": lambda _: lambda handler: handler.send_raw(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "another HTTP": lambda _: lambda handler: handler.send_raw(b"HTTP/9.9 200 OK\r\n\r\n"),
    "endless status line": lambda _: lambda handler: handler.send_raw(b"HTTP/1.1 200 " + b"x" * 100_000),
    "too many headers": lambda _: (
        lambda handler: handler.send_raw(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500 + b"\r\n")
    ),
    "bad chunks": lambda _: lambda handler: handler.send_raw(CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n"),
    "chunks cut off": lambda _: lambda handler: handler.send_raw(CHUNKED + b'8\r\n{"a":'),
    "two lengths": lambda _: (
        lambda handler: handler.send_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}")
    ),
    "not gzip": lambda s: s.responds(200, raw=b"plain", Content_Encoding="gzip"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_outcome_is_tried_six_times(
    server: SERVER, connect: Any, script: Any, fake_time: Any, name: str
) -> None:
    client = connect(server.url, timeout=0.2 if name in WAITED_FOR else 10)
    server.will(UNKNOWN[name](script))
    with pytest.raises(OutcomeUnknown) as caught:
        client.call(operations.ADD_USERS, ADD)
    assert "after 6 tries)" in str(caught.value)
    assert len(server.received) == 6
    assert [
        round(wait / 0.5 / 2**n, 3) for n, wait in enumerate(fake_time.slept) if not 0.5 <= wait / 0.5 / 2**n <= 1
    ] == []
    assert len(fake_time.slept) == 5


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_outcome_is_known_after_a_good_answer(
    server: SERVER, connect: Any, script: Any, watching: Any, name: str
) -> None:
    client = connect(server.url, timeout=1 if name in WAITED_FOR else 10)
    server.will(UNKNOWN[name](script), script.succeeds(DONE))
    assert client.call(operations.ADD_USERS, ADD).data["ada"].success
    (record,) = watching.records
    assert (record.operation, record.http_status, record.tries, record.succeeded) == ("add_users", 200, 2, True)


@pytest.mark.parametrize("compressed", [False, True])
def test_answer_beyond_the_limit_is_not_read(
    server: SERVER, *, connect: Any, script: Any, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.client.transport.MAX_RESPONSE_BYTES", 1024 * 1024)
    client = connect(server.url, parts={"policy": RetryPolicy(repeats=1)}, timeout=10)
    body = b" " * (100 * 1024 * 1024)
    encoding = {"Content_Encoding": "gzip"} if compressed else {}
    server.will(script.responds(200, raw=gzip.compress(body, 1) if compressed else body, **encoding))
    tracemalloc.start()
    with pytest.raises(OutcomeUnknown, match="larger than"):
        client.call(operations.ADD_USERS, ADD)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * 1024 * 1024


def test_unrequested_compression_is_decoded(server: SERVER, client: BackendClient, script: Any) -> None:
    answer = b'{"result": {"status": "success", "message": "small", "data": {}}}'
    server.will(script.responds(200, raw=gzip.compress(answer), Content_Encoding="gzip"))
    assert client.call(operations.ADD_USERS, ADD).message == "small"
    assert server.received[0].headers["accept-encoding"] == "identity"


def test_large_answer_within_the_limit_is_read(server: SERVER, client: BackendClient, script: Any) -> None:
    users = [{"userId": f"user-{n}", "name": "x" * 200} for n in range(20_000)]
    server.will(script.succeeds(users))
    answer = client.call(operations.GET_USERS, GetUsersRequest(organization_id="acme"))
    assert len(answer.data) == 20_000


def test_reset_before_reading_is_tried_again(server: SERVER, client: BackendClient, script: Any) -> None:
    server.will(script.succeeds(DONE))
    server.resets_before_reading = 2
    assert client.call(operations.ADD_USERS, ADD).data["ada"].success


def test_creating_operation_is_not_repeated(server: SERVER, client: BackendClient, script: Any) -> None:
    server.will(script.responds(502, raw=b""))
    with pytest.raises(OutcomeUnknown) as caught:
        client.call(operations.CREATE_WORKSPACE, CreateWorkspaceRequest(owner_email="a@acme.example"))
    assert "after 1 try)" in str(caught.value)


# --- No connection ---


def test_refused_connection_is_tried_six_times(connect: Any, closed_port: int, fake_time: Any, watching: Any) -> None:
    with pytest.raises(NotReached, match=f"nothing listens at 127.0.0.1:{closed_port} ") as caught:
        connect(f"http://127.0.0.1:{closed_port}").call(operations.ADD_USERS, ADD)
    assert "after 6 tries)" in str(caught.value)
    assert caught.value.__cause__ is not None
    assert len(fake_time.slept) == 5
    assert watching.records[0].http_status is None


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 70 + ".example", "a..example", "[::1%25nowhere]"])
def test_unknown_host_is_not_reached(connect: Any, host: str) -> None:
    with pytest.raises(NotReached):
        connect(f"http://{host}").call(operations.ADD_USERS, ADD)


def test_plain_http_where_tls_is_expected_is_no_success(server: SERVER, connect: Any, script: Any) -> None:
    server.will(script.succeeds(DONE))
    with pytest.raises(ClientError):
        connect(server.url.replace("http://", "https://")).call(operations.ADD_USERS, ADD)


def test_one_unknown_outcome_makes_the_whole_call_unknown(
    server: SERVER, client: BackendClient, script: Any, fake_time: Any
) -> None:
    server.will(script.responds(502, raw=b""), script.responds(429, raw=b"", Retry_After="119"))
    with pytest.raises(OutcomeUnknown, match="outcome unknown: HTTP 429"):
        client.call(operations.ADD_USERS, ADD)


# --- Throttling ---


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", 7.0),
        ("0.25", 0.25),
        ("Fri, 20 Nov 2026 12:00:09 GMT", 9.0),
        ("86400", 120.0),
        ("1e300", 120.0),
        ("inf", 120.0),
        ("Fri, 20 Nov 2099 12:00:00 GMT", 120.0),
    ],
)
@pytest.mark.parametrize("code", [429, 503])
def test_throttled_call_waits_for_retry_after(
    server: SERVER, *, client: BackendClient, script: Any, fake_time: Any, header: str, wait: float, code: int
) -> None:
    server.will(script.responds(code, raw=b"", Retry_After=header), script.succeeds(DONE))
    assert client.call(operations.ADD_USERS, ADD).data["ada"].success
    assert fake_time.slept == [pytest.approx(wait)]


@pytest.mark.parametrize(
    "header", ["-5", "0", "nan", "soon", "", "Fri, 20 Nov 2020 12:00:00 GMT", "Fri, 99 Nov", "-inf"]
)
def test_throttled_call_backs_off_when_the_header_is_absurd(
    server: SERVER, client: BackendClient, script: Any, fake_time: Any, header: str
) -> None:
    server.will(script.responds(429, raw=b"", Retry_After=header), script.succeeds(DONE))
    client.call(operations.ADD_USERS, ADD)
    (wait,) = fake_time.slept
    assert 0.25 <= wait <= 0.5


def test_throttled_call_without_header_backs_off_further_each_time(
    server: SERVER, client: BackendClient, script: Any, fake_time: Any
) -> None:
    throttled = script.fails(400, "RESOURCE_EXHAUSTED", "slowly")
    server.will(*[throttled] * 8, script.succeeds(DONE))
    client.call(operations.ADD_USERS, ADD)
    assert len(fake_time.slept) == 8
    assert fake_time.slept[5] > fake_time.slept[1] * 4
    assert max(fake_time.slept) <= 30


def test_throttled_call_is_given_up_when_the_waiting_adds_up(
    server: SERVER, client: BackendClient, script: Any, fake_time: Any
) -> None:
    server.will(script.responds(429, raw=b"", Retry_After="70"))
    with pytest.raises(RateLimited, match="throttled: HTTP 429") as caught:
        client.call(operations.ADD_USERS, ADD)
    assert "after 5 tries)" in str(caught.value)
    assert sum(fake_time.slept) == pytest.approx(280)


def test_throttling_reduces_concurrency(server: SERVER, client: BackendClient, script: Any) -> None:
    server.will(script.responds(429, raw=b"", Retry_After="1"), script.succeeds(DONE))
    assert int(client._retrying.limiter._allowed) == 4
    client.call(operations.ADD_USERS, ADD)
    assert int(client._retrying.limiter._allowed) == 2
    for _ in range(30):
        client.call(operations.ADD_USERS, ADD)
    assert int(client._retrying.limiter._allowed) == 4


@pytest.mark.parametrize("headers", [{}, {"Retry_After": "3600"}])
def test_throttled_creating_operation_is_a_refusal(
    server: SERVER, client: BackendClient, script: Any, fake_time: Any, headers: dict[str, str]
) -> None:
    server.will(script.fails(429, "RESOURCE_EXHAUSTED", "five workspaces", **headers))
    with pytest.raises(BackendRefused) as caught:
        client.call(operations.CREATE_WORKSPACE, CreateWorkspaceRequest(owner_email="a@acme.example"))
    assert caught.value.status is Status.RESOURCE_EXHAUSTED
    assert fake_time.slept == []


def test_creating_operation_waits_for_retry_after(
    server: SERVER, client: BackendClient, script: Any, fake_time: Any
) -> None:
    workspace = {"id": "w-1", "name": "W", "owner": {}, "authToken": "t", "apiKeyList": {}}
    server.will(script.fails(429, "RESOURCE_EXHAUSTED", "busy", Retry_After="3"), script.succeeds(workspace))
    assert (
        client.call(operations.CREATE_WORKSPACE, CreateWorkspaceRequest(owner_email="a@acme.example")).data.id == "w-1"
    )
    assert fake_time.slept == [3]


# --- Stopping ---


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (lambda s: s.responds(502, raw=b""), OutcomeUnknown),
        (lambda s: s.responds(429, raw=b"", Retry_After="100"), RateLimited),
    ],
)
def test_stop_ends_a_wait_at_once(
    server: SERVER, *, connect: Any, script: Any, behaviour: Any, kind: type[ClientError]
) -> None:
    stop = threading.Event()
    policy = RetryPolicy(first_backoff=30)
    parts = {"stop": stop, "sleep": None, "monotonic": time.monotonic, "policy": policy}
    client = connect(server.url, parts=parts)
    server.will(behaviour(script))
    threading.Timer(0.2, stop.set).start()
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        client.call(operations.ADD_USERS, ADD)
    assert time.monotonic() - began < 3
    assert caught.value.stopped  # type: ignore[attr-defined] # of all that may be raised here
    assert len(server.received) == 1


def test_stop_before_the_first_try_sends_nothing(server: SERVER, connect: Any) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(NotReached, match="not sent") as caught:
        connect(server.url, parts={"stop": stop}).call(operations.ADD_USERS, ADD)
    assert caught.value.stopped
    assert server.received == []


# --- Threads ---


def test_threads_share_the_limit_of_calls_in_flight(server: SERVER, connect: Any, script: Any) -> None:
    under_way, most, lock = 0, 0, threading.Lock()

    def counts(handler: Any) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.02)
        with lock:
            under_way -= 1
        script.succeeds(DONE)(handler)

    client = connect(server.url, max_in_flight=3, parts={"monotonic": time.monotonic, "sleep": time.sleep}, timeout=10)
    server.will(counts)
    threads = [threading.Thread(target=client.call, args=(operations.ADD_USERS, ADD)) for _ in range(15)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 3
    assert len(server.received) == 15


# --- Secrets ---


def test_credentials_never_show(
    server: SERVER,
    client: BackendClient,
    script: Any,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Even where the backend sends them back."""
    caplog.set_level(logging.DEBUG)
    echo = "bad token-of-acme-0815 for key-of-acme-4711"
    texts = [repr(client), str(client), repr(client._credentials), str(vars(client))]
    for behaviour in (
        script.fails(400, "INVALID_ARGUMENT", echo),
        script.fails(401, "UNAUTHENTICATED", echo),
        script.fails(500, "INTERNAL", echo),
        script.responds(200, {"result": {"status": "success", "data": {echo: 1}, "message": echo}}),
        script.responds(302, raw=b"", Location=f"http://x/{echo}"),
        script.responds(404, {"error": {"message": echo}}),
        lambda handler: handler.reset(),
    ):
        server.will(behaviour)
        for call in (
            lambda: client.call(operations.ADD_USERS, ADD),
            lambda: client.call(
                operations.DELETE_DOCUMENTS, DeleteDocumentsRequest(organization_id="acme", document_ids=["x"])
            ),
            lambda: client.call(operations.GET_USERS, GetUsersRequest(organization_id="acme")),
        ):
            try:
                call()
            except ClientError as error:
                seen: BaseException | None = error
                while seen is not None:
                    texts += [str(seen), repr(seen), str(vars(seen))]
                    seen = seen.__cause__ or seen.__context__
    printed = capsys.readouterr()
    everything = "\n".join([*texts, caplog.text, printed.out, printed.err])
    assert "add_users" in everything
    assert "token-of-acme-0815" not in everything
    assert "key-of-acme-4711" not in everything


def test_environment_does_not_change_where_calls_go(
    server: SERVER, *, connect: Any, script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, closed_port: int
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{closed_port}")
    server.will(script.responds(200, {"result": {"status": "success", "data": {}, "message": ""}}, Set_Cookie="a=b"))
    client = connect(server.url)
    client.call(operations.DELETE_USERS, DeleteUsersRequest(organization_id="acme", user_ids=["ada"]))
    client.call(operations.DELETE_USERS, DeleteUsersRequest(organization_id="acme", user_ids=["ada"]))
    assert "authorization" not in server.received[0].headers
    assert "cookie" not in server.received[1].headers
