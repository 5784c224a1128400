"""Checks that the backend answers and accepts the credentials, and that its clock agrees with ours."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter

from app.client.client import BackendClient
from app.client.errors import BackendRefused, ClientError, CredentialsRefused, OperationMissing
from app.commands.bootstrap.outgoing import backend_client
from app.commands.bootstrap.requirements import has_credentials
from app.commands.doctor.finding import Finding, Findings, State, ok, problem, warning
from app.commands.doctor.registration import check_registration
from app.contract import operations
from app.contract.organizations import AddOrganizationsRequest, GetOrganizationsRequest
from app.foundation.clock import Clock
from app.foundation.outbound.failure import FailureKind
from app.foundation.outbound.http_dates import http_date
from app.foundation.outbound.session import VerifyingAdapter
from app.foundation.text import printable
from app.settings import Settings

_TIMEOUT = 10.0
_CLOCK_WARNING, _CLOCK_PROBLEM = 30.0, 300.0
"""Seconds between the clocks."""


class _RecordingAdapter(VerifyingAdapter):
    """Sends requests, and records status, media type and time of the last response."""

    def __init__(self, clock: Clock, inner: BaseAdapter | None) -> None:
        super().__init__(max_retries=0)
        self._clock = clock
        self._inner = inner
        self.clock_offset: float | None = None
        """Seconds by which our clock is ahead of the response's ``Date``."""
        self.status = 0
        self.media_type = ""

    @property
    def is_json(self) -> bool:
        return self.media_type.endswith("json")

    def send(self, request: requests.PreparedRequest, *arguments: Any, **keywords: Any) -> requests.Response:
        self.status, self.media_type = 0, ""
        started_at = self._clock()
        send = super().send if self._inner is None else self._inner.send
        response = send(request, *arguments, **keywords)
        middle = started_at + (self._clock() - started_at) / 2
        self.status = response.status_code
        self.media_type = printable(response.headers.get("Content-Type", "").partition(";")[0].strip(), limit=40)
        if (date := http_date(response.headers.get("Date", ""))) is not None:
            self.clock_offset = (middle - date).total_seconds()
        return response


def check_backend(
    settings: Settings,
    *,
    clock: Clock,
    transport: BaseAdapter | None = None,
    instance: Callable[[], str | None] = lambda: None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Findings:
    """Checks the backend with at most four calls. They change nothing and are not retried. ``transport`` replaces the
    network. ``instance``: see ``check_registration``. ``environment`` may name certificates for other programs."""
    if not has_credentials(settings):
        message = "backend.api_key or backend.auth_token is empty: nothing can be synced"
        yield problem("backend", message, "set both (usher backend bootstrap makes some for the self-hosted backend)")
        return
    adapter = _RecordingAdapter(clock, transport)
    timeout = min(settings.backend.timeout, _TIMEOUT)
    with backend_client(settings, timeout=timeout, clock=clock, transport=adapter) as client:
        bundle = "" if settings.backend.ca_file else _ignored_bundle(environment)
        finding = _check_answers(client, adapter, settings.backend.base_url, bundle)
        yield finding
        if finding.state is not State.OK:
            # It may not be the backend, so its clock and registration mean nothing.
            return
        if adapter.clock_offset is not None:
            yield _check_clock(adapter.clock_offset)
        yield from check_registration(client, settings, instance)


def _check_answers(client: BackendClient, adapter: _RecordingAdapter, url: str, bundle: str) -> Finding:
    try:
        client.call(operations.GET_ORGANIZATIONS, GetOrganizationsRequest(page_size=1))
    except OperationMissing:
        return _check_core_operations(client, adapter, url)
    except ClientError as error:
        finding = _failure(error, adapter, url)
        if bundle and error.failure is not None and error.failure.kind is FailureKind.UNTRUSTED:
            return problem("backend", f"{finding.message}; {bundle}, which Usher does not read", finding.advice)
        return finding
    return ok("backend", f"{url} answers and accepts the credentials")


def _ignored_bundle(environment: Mapping[str, str]) -> str:
    """The variable that names certificates for other programs. Empty if there is none."""
    names = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
    return next((f"{name} names {environment[name]}" for name in names if environment.get(name)), "")


def _check_core_operations(client: BackendClient, adapter: _RecordingAdapter, url: str) -> Finding:
    """Sends an empty batch, because any web server may answer 404 to the first call."""
    try:
        client.call(operations.ADD_ORGANIZATIONS, AddOrganizationsRequest(organizations=[]))
    except OperationMissing as error:
        message = (
            f"no backend answers at {url}: HTTP {error.http_code} to each of two operations that every backend has"
        )
        return problem("backend", message, _address_advice(url))
    except BackendRefused as error:
        if isinstance(error, CredentialsRefused) or not adapter.is_json:
            return _failure(error, adapter, url)
        # A backend may refuse an empty batch. It has the operation, and accepted the credentials.
    except ClientError as error:
        return _failure(error, adapter, url)
    return ok("backend", f"{url} answers, with the reference's core operations")


def _failure(error: ClientError, adapter: _RecordingAdapter, url: str) -> Finding:
    if error.failure is not None:
        advice = error.failure.advice(address="backend.base_url", section="backend")
        return problem("backend", f"{url}: {error.failure.message}", advice)
    if not adapter.is_json:
        return _unexpected_server(adapter, url)
    if isinstance(error, CredentialsRefused):
        message = f"{url} refuses the credentials: {error.message}"
        return problem("backend", message, "check backend.api_key, backend.auth_token and backend.header_prefix")
    if isinstance(error, BackendRefused):
        return warning("backend", f"{url} answers, but refuses a read: {error.message}", "check the backend")
    if adapter.status in {429, 503}:
        message = f"{url} refuses calls for now: {error.message}"
        return problem("backend", message, "wait, and check the backend if it continues")
    return problem("backend", f"{url}: {error.message}", "check the backend's log")


def _unexpected_server(adapter: _RecordingAdapter, url: str) -> Finding:
    """The answer is not JSON, so another server than the backend sent it."""
    status = adapter.status
    answer = f"HTTP {status} and {adapter.media_type or 'no content type'} instead of a backend's JSON"
    if status in {502, 503, 504}:
        message = f"{url} answers with {answer}: a load balancer or proxy without a backend behind it"
        return problem("backend", message, "check that the backend runs, and the address that the proxy uses")
    if 300 <= status < 400:
        return problem("backend", f"{url} redirects (HTTP {status})", "set backend.base_url to the target")
    if status in {401, 403}:
        message = f"{url} answers with {answer}: a server in front of the backend refuses access"
        return problem("backend", message, f"allow this machine there; {_address_advice(url)}")
    return problem("backend", f"{url} answers with {answer}: another web server", _address_advice(url))


def _address_advice(url: str) -> str:
    path = urlsplit(url).path.strip("/")
    if path:
        return f"backend.base_url should have no version or path: omit /{path}, unless it is the API's own"
    return "check that backend.base_url is the address of the backend's API, and not of another web server"


def _check_clock(offset: float) -> Finding:
    direction = "ahead of" if offset > 0 else "behind"
    message = f"this machine's is {abs(offset):.0f} s {direction} the backend's"
    advice = "let NTP set it: temporary access begins and ends by this clock"
    if abs(offset) > _CLOCK_PROBLEM:
        return problem("clock", message, advice)
    return (
        warning("clock", message, advice) if abs(offset) > _CLOCK_WARNING else ok("clock", "agrees with the backend's")
    )
