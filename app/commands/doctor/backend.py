"""The check of the backend: that it answers, accepts the credentials, and agrees about the time."""

from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter

from app.client.client import BackendClient
from app.client.errors import BackendRefused, ClientError, CredentialsRefused, OperationMissing
from app.commands.bootstrap.outside import impatient_client
from app.commands.bootstrap.requirements import has_credentials
from app.commands.doctor.finding import Finding, Findings, State, ok, problem, warning
from app.commands.doctor.registration import look_at_registration
from app.contract import operations
from app.contract.organizations import AddOrganizationsRequest, GetOrganizationsRequest
from app.foundation.clock import Clock
from app.foundation.outbound.failure import FailureKind, advice
from app.foundation.outbound.session import VerifyingAdapter
from app.foundation.text import printable
from app.settings import Settings

_PATIENCE = 10.0
_CLOCK_WARNING, _CLOCK_PROBLEM = 30.0, 300.0
"""Seconds by which our clock may be off."""


class _AnswerKeeper(VerifyingAdapter):
    """The network, and what can be seen of the last answer from outside."""

    def __init__(self, clock: Clock, inner: BaseAdapter | None) -> None:
        super().__init__(max_retries=0)
        self._clock = clock
        self._inner = inner
        self.off: float | None = None
        """Seconds by which our clock is ahead of the answer's ``Date``."""
        self.code = 0
        self.is_json = False
        self.kind = ""
        """The answer's media type."""

    def send(self, request: requests.PreparedRequest, *arguments: Any, **keywords: Any) -> requests.Response:
        """As the network does it."""
        self.code, self.is_json, self.kind = 0, False, ""
        began = self._clock()
        network = super().send if self._inner is None else self._inner.send
        answer = network(request, *arguments, **keywords)
        middle = began + (self._clock() - began) / 2
        self.code = answer.status_code
        self.kind = printable(answer.headers.get("Content-Type", "").partition(";")[0].strip(), limit=40)
        self.is_json = self.kind.endswith("json")
        try:
            told = parsedate_to_datetime(answer.headers.get("Date", ""))
        except ValueError:
            return answer
        self.off = (middle - (told if told.tzinfo else told.replace(tzinfo=UTC))).total_seconds()
        return answer


def look_at_backend(
    settings: Settings,
    *,
    clock: Clock,
    transport: BaseAdapter | None = None,
    instance: Callable[[], str | None] = lambda: None,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Findings:
    """Four calls at most that change nothing, each tried once. ``transport`` replaces the network; ``instance`` as in
    ``look_at_registration``; ``environment`` is searched for certificates that other programs trust."""
    if not has_credentials(settings):
        yield problem(
            "backend",
            "backend.api_key or backend.auth_token is empty: nothing can be synced",
            "set both (usher backend bootstrap makes some for the self-hosted backend)",
        )
        return
    keeper = _AnswerKeeper(clock, transport)
    timeout = min(settings.backend.timeout, _PATIENCE)
    with impatient_client(settings, timeout=timeout, clock=clock, transport=keeper) as client:
        bundle = "" if settings.backend.ca_file else _ignored_bundle(environment)
        reached = _look_at_answers(client, keeper, settings.backend.base_url, bundle)
        yield reached
        if reached.state is not State.OK:
            # What is not known to be the backend tells nothing about clocks and registrations.
            return
        if keeper.off is not None:
            yield _look_at_clock(keeper.off)
        yield from look_at_registration(client, settings, instance)


def _look_at_answers(client: BackendClient, keeper: _AnswerKeeper, url: str, bundle: str) -> Finding:
    try:
        client.call(operations.GET_ORGANIZATIONS, GetOrganizationsRequest(page_size=1))
    except OperationMissing:
        return _look_for_core(client, keeper, url)
    except ClientError as error:
        finding = _unwell(error, keeper, url)
        if bundle and error.failure is not None and error.failure.kind is FailureKind.UNTRUSTED:
            return problem("backend", f"{finding.says}; {bundle}, which Usher does not read", finding.advice)
        return finding
    return ok("backend", f"{url} answers and accepts the credentials")


def _ignored_bundle(environment: Mapping[str, str]) -> str:
    """The variable that names certificates for other programs; empty if there is none."""
    names = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
    return next((f"{name} names {environment[name]}" for name in names if environment.get(name)), "")


def _look_for_core(client: BackendClient, keeper: _AnswerKeeper, url: str) -> Finding:
    """Any web server says that there is nothing at a path. An empty batch is answered by backends alone."""
    try:
        client.call(operations.ADD_ORGANIZATIONS, AddOrganizationsRequest(organizations=[]))
    except OperationMissing as error:
        says = f"no backend answers at {url}: HTTP {error.http_code} to each of two operations that every backend has"
        return problem("backend", says, _where_else(url))
    except BackendRefused as error:
        if isinstance(error, CredentialsRefused) or not keeper.is_json:
            return _unwell(error, keeper, url)
    except ClientError as error:
        return _unwell(error, keeper, url)
    return ok("backend", f"{url} answers, with the reference's core operations")


def _unwell(error: ClientError, keeper: _AnswerKeeper, url: str) -> Finding:
    if error.failure is not None:
        what_to_do = advice(error.failure, address="backend.base_url", section="backend")
        return problem("backend", f"{url}: {error.failure.says}", what_to_do)
    if not keeper.is_json:
        return _foreign(keeper, url)
    if isinstance(error, CredentialsRefused):
        return problem(
            "backend",
            f"{url} refuses the credentials: {error.message}",
            "see that backend.api_key, backend.auth_token and backend.header_prefix are those that it gave you",
        )
    if isinstance(error, BackendRefused):
        return warning("backend", f"{url} answers, but refuses a plain read: {error.message}", "look at the backend")
    if keeper.code in {429, 503}:
        says = f"{url} turns calls away for now: {error.message}"
        return problem("backend", says, "wait, and look at the backend if it does not pass")
    return problem("backend", f"{url}: {error.message}", "look at the backend's own log")


def _foreign(keeper: _AnswerKeeper, url: str) -> Finding:
    """An answer that no backend gives."""
    answered = f"HTTP {keeper.code} and {keeper.kind or 'no type of content'} instead of a backend's JSON"
    if keeper.code in {502, 503, 504}:
        says = f"{url} answers with {answered}: a load balancer or proxy without a backend behind it"
        return problem("backend", says, "see that the backend runs and that what stands before it knows where")
    if 300 <= keeper.code < 400:
        says = f"{url} redirects elsewhere (HTTP {keeper.code})"
        return problem("backend", says, "let backend.base_url name where the backend really is")
    if keeper.code in {401, 403}:
        says = f"{url} answers with {answered}: something before the backend lets nobody through"
        return problem("backend", says, "let this machine through there; " + _where_else(url))
    return problem("backend", f"{url} answers with {answered}: another web server", _where_else(url))


def _where_else(url: str) -> str:
    path = urlsplit(url).path.strip("/")
    if path:
        return f"see that backend.base_url has no version or path in it: leave /{path} out, unless it is the API's own"
    return "see that backend.base_url is where the backend's API begins, and not another web server"


def _look_at_clock(off: float) -> Finding:
    how = f"this machine's is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the backend's"
    what_to_do = "let NTP set it: temporary access begins and ends by this clock"
    if abs(off) > _CLOCK_PROBLEM:
        return problem("clock", how, what_to_do)
    return warning("clock", how, what_to_do) if abs(off) > _CLOCK_WARNING else ok("clock", "agrees with the backend's")
