"""Checks that the backend calls this service, at the right address and with an accepted token."""

import contextlib
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson
import requests

from app.client.client import BackendClient
from app.client.errors import ClientError, OperationMissing
from app.commands.doctor.finding import Finding, Findings, ok, problem, warning
from app.contract import operations
from app.contract.base import NoParameters
from app.foundation.outbound.failure import CALL_ERRORS, CallFailure, FailureKind, call_failure
from app.foundation.outbound.probe import probed_failure_of
from app.foundation.outbound.route import Route
from app.foundation.outbound.session import session_for
from app.foundation.outbound.urls import address_of
from app.http.tokens import TokenSet
from app.service.provider.settings import INSTANCE_HEADER, ProviderSettings
from app.settings import Settings

_TIMEOUT = 10.0
_MAX_BYTES = 64 * 1024

_ALSO_FOR_BACKEND = frozenset(
    {
        FailureKind.UNRESOLVED,
        FailureKind.REFUSED,
        FailureKind.NOT_TLS,
        FailureKind.TLS_REQUIRED,
        FailureKind.EXPIRED,
        FailureKind.WRONG_HOST,
        FailureKind.INVALID_URL,
    }
)
"""Failures that the backend has as well. Others may be ours alone: the backend may trust other authorities, be let
through a firewall, or have a route to an address that is ``UNREACHABLE`` from here."""


def check_registration(client: BackendClient, settings: Settings, instance: Callable[[], str | None]) -> Findings:
    """Reads the registration, and calls its address. ``instance`` returns our own instance stamp, or None."""
    provider = settings.provider
    try:
        config = client.call(operations.GET_PERMISSION_PROVIDER_CONFIG, NoParameters()).data
    except OperationMissing:
        advice = f"check in its console that it calls the service, at a URL that ends in {provider.path}"
        yield warning("registration", "the backend cannot return its registration", advice)
        return
    except ClientError as error:
        message = f"the backend did not return its registration: {error.message}"
        yield warning("registration", message, "check the backend")
        return
    registered = config.permission_provider_config
    if not config.use_permission_provider or registered is None or not registered.permission_provider_url:
        how = f"usher provider register --url URL (it ends in {provider.path})"
        message = "the backend does not call the service for permissions"
        yield warning("registration", message, f"{how}, or register it in the backend's console")
        return
    url, token = registered.permission_provider_url, registered.auth_token or ""
    yield _check_registered(url, token, provider)
    yield _check_service(url, token, settings, instance)


def _check_registered(url: str, token: str, provider: ProviderSettings) -> Finding:
    address = _without_query(url)
    if not provider.allow_anonymous and not TokenSet(provider.auth_tokens).accepts(token):
        how = "with a token that is not among provider.auth_tokens" if token else "without a token"
        advice = "register one of provider.auth_tokens there (usher provider register), or accept its token here"
        return problem("registration", f"the backend calls {address} {how}", advice)
    path = urlsplit(address).path
    if path == provider.path:
        return ok("registration", f"the backend calls {address}, with an accepted token")
    if path.rstrip("/") == provider.path.rstrip("/"):
        slash = "with a slash" if path.endswith("/") else "without the slash"
        message = f"the backend calls {address}, {slash} at its end; provider.path is {provider.path}"
        return warning("registration", message, f"register the URL so that it ends in {provider.path}")
    message = f"the backend calls {address}, but provider.path is {provider.path}"
    return warning("registration", message, "register the right URL, unless a proxy rewrites it")


def _check_service(url: str, token: str, settings: Settings, instance: Callable[[], str | None]) -> Finding:
    """Sends the backend's call, with an empty list of questions."""
    address = _without_query(url)
    # The stamp may change during the call, so either value is ours.
    stamps = {instance()}
    answer = _call(url, token, Route(settings.backend.ca_file))
    if isinstance(answer, CallFailure) and settings.backend.proxy.get_secret_value():
        # The network may have no other route.
        answer = _call(url, token, Route(settings.backend.ca_file, settings.backend.proxy))
    if isinstance(answer, CallFailure):
        severity = problem if answer.kind in _ALSO_FOR_BACKEND else warning
        message = f"{address} does not answer from here: {answer.message}"
        return severity("service", message, _failure_advice(answer, settings.server.port))
    stamps.add(instance())
    if answer.is_provider and answer.stamp and None not in stamps and answer.stamp not in stamps:
        message = f"another Usher, with another database, answers at {address} and accepts the token"
        advice = "stop it, or register the URL of this one; use different tokens in each installation"
        return problem("service", message, advice)
    if answer.is_provider:
        return ok("service", f"{address} answers")
    return _wrong_answer(url, answer.status, settings)


def _wrong_answer(url: str, status: int, settings: Settings) -> Finding:
    path, port, address = settings.provider.path, settings.server.port, _without_query(url)
    if _is_the_backend(url, settings):
        message = f"the backend calls itself: {address} is the backend, which answers with {status}"
        advice = f"register the address of usher serve (server.port is {port})"
    elif status in {401, 403}:
        message = f"{address} answers with {status}: it does not accept the backend's token"
        advice = f"check that it is this Usher (server.port is {port}); reload it after changes of provider.auth_tokens"
    elif status in {404, 405}:
        message = f"{address} answers with {status}: there is no permission provider at this path"
        advice = f"register the URL of usher serve (server.port is {port}) so that it ends in {path}"
    elif status in {502, 503, 504}:
        message = f"{address} answers with {status}: usher serve does not run behind it, or cannot answer yet"
        advice = "check that usher serve runs there, and its /readyz"
    else:
        message = f"{address} answers with {status}, and not as a permission provider does"
        advice = f"register the URL of usher serve (server.port is {port}) with {path}"
    return problem("service", message, advice)


class _ProviderAnswer(NamedTuple):
    status: int
    is_provider: bool
    """Whether a permission provider answered."""
    stamp: str
    """The instance stamp of its access model."""


def _call(url: str, token: str, route: Route) -> _ProviderAnswer | CallFailure:
    """Sends an empty list of questions."""
    headers = {INSTANCE_HEADER: "?"} | ({"authorization": f"Bearer {token}"} if token else {})
    body: dict[str, object] = {"data": {"requests": []}}
    with session_for(route) as session:
        try:
            with session.post(
                url, json=body, headers=headers, timeout=_TIMEOUT, allow_redirects=False, stream=True
            ) as response:
                content = response.raw.read(_MAX_BYTES, decode_content=True)
                stamp = response.headers.get(INSTANCE_HEADER, "")
                return _ProviderAnswer(response.status_code, _is_provider(response.status_code, content), stamp)
        except (*CALL_ERRORS, ValueError) as error:
            try:
                return probed_failure_of(error, url, route)
            except ValueError:
                return call_failure(FailureKind.INVALID_URL)


def _is_provider(status: int, body: bytes) -> bool:
    """Whether the answer is a provider's: results in ``data``, or a refusal of the empty call."""
    answer: object = None
    with contextlib.suppress(orjson.JSONDecodeError):
        answer = orjson.loads(body)
    if not isinstance(answer, dict):
        return False
    if status == requests.codes.ok:
        return isinstance(answer.get("data"), list)
    error = answer.get("error")
    return (
        status == requests.codes.bad_request and isinstance(error, dict) and error.get("status") == "INVALID_ARGUMENT"
    )


def _is_the_backend(url: str, settings: Settings) -> bool:
    with contextlib.suppress(ValueError):
        return address_of(url) == address_of(settings.backend.base_url)
    return False


def _failure_advice(failure: CallFailure, port: int) -> str:
    return {
        FailureKind.UNRESOLVED: "register the URL again with the right host name",
        FailureKind.REFUSED: f"start usher serve there, or register its address (server.port is {port})",
        FailureKind.NOT_TLS: "register it with http://, or the port of its TLS proxy",
        FailureKind.TLS_REQUIRED: "register it with https://",
        FailureKind.UNTRUSTED: "check that the backend trusts its issuer; backend.ca_file makes this machine trust it",
        FailureKind.WRONG_HOST: "register it under the name that its certificate is for",
        FailureKind.EXPIRED: "renew the certificate of the proxy in front of usher serve",
    }.get(failure.kind, "check that usher serve runs there, and that this machine and the backend may connect to it")


def _without_query(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an invalid address"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
