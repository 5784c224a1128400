"""Does the backend answer, accept the credentials, agree about the time, and ask the service for permissions?"""

import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import BaseAdapter, HTTPAdapter

from app.bootstrap import has_credentials
from app.client.client import BackendClient
from app.client.errors import BackendRefused, ClientError, CredentialsRefused, OperationMissing
from app.client.retry import RetryPolicy
from app.contract.organizations import GetOrganizationsRequest
from app.contract.permissions import PermissionProviderConfig
from app.doctor.finding import Finding, Findings, ok, problem, warning
from app.provider.settings import ProviderSettings
from app.settings import Settings

Clock = Callable[[], datetime]

_PATIENCE = 10.0
_CLOCK_WARNING, _CLOCK_PROBLEM = 30.0, 300.0
"""Seconds by which our clock may be off."""


class _DateKeeper(HTTPAdapter):
    """The network, and how far the last answer's ``Date`` was from our own clock."""

    def __init__(self, clock: Clock, inner: BaseAdapter | None) -> None:
        super().__init__(max_retries=0)
        self._clock = clock
        self._inner = inner
        self.off: float | None = None

    def send(self, request: requests.PreparedRequest, *arguments: Any, **keywords: Any) -> requests.Response:
        """As the network does it."""
        began = self._clock()
        network = super().send if self._inner is None else self._inner.send
        answer = network(request, *arguments, **keywords)
        middle = began + (self._clock() - began) / 2
        try:
            told = parsedate_to_datetime(answer.headers.get("Date", ""))
        except ValueError:
            return answer
        self.off = (middle - (told if told.tzinfo else told.replace(tzinfo=UTC))).total_seconds()
        return answer


def look_at_backend(settings: Settings, *, clock: Clock, transport: BaseAdapter | None = None) -> Findings:
    """Three reads at most, each tried once. ``transport`` replaces the network."""
    if not has_credentials(settings):
        yield problem(
            "backend",
            "backend.api_key or backend.auth_token is empty: nothing can be synced",
            "set both (usher backend bootstrap makes some for the self-hosted backend)",
        )
        return
    keeper = _DateKeeper(clock, transport)
    patient = settings.backend.model_copy(update={"timeout": min(settings.backend.timeout, _PATIENCE)})
    with BackendClient(patient, transport=keeper, clock=clock, policy=RetryPolicy(repeats=0, max_waiting=0)) as client:
        reached = _look_at_credentials(client, settings.backend.base_url)
        yield reached
        if keeper.off is not None:
            yield _look_at_clock(keeper.off)
        if not reached.advice:
            yield from _look_at_registration(client, settings.provider)


def _look_at_credentials(client: BackendClient, url: str) -> Finding:
    try:
        client.get_organizations(GetOrganizationsRequest(page_size=1))
    except CredentialsRefused as error:
        return problem(
            "backend",
            f"{url} refuses the credentials: {error.message}",
            "see that backend.api_key, backend.auth_token and backend.header_prefix are those that it gave you",
        )
    except OperationMissing:
        return ok("backend", f"{url} answers, with the reference's core operations")
    except BackendRefused as error:
        return warning("backend", f"{url} answers, but refuses a plain read: {error.message}", "look at the backend")
    except ClientError as error:
        return problem(
            "backend",
            f"{url}: {error.message}",
            "see that backend.base_url is right and that this machine may connect there",
        )
    return ok("backend", f"{url} answers and accepts the credentials")


def _look_at_clock(off: float) -> Finding:
    how = f"this machine's is {abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the backend's"
    advice = "let NTP set it: temporary access begins and ends by this clock"
    if abs(off) > _CLOCK_PROBLEM:
        return problem("clock", how, advice)
    return warning("clock", how, advice) if abs(off) > _CLOCK_WARNING else ok("clock", "agrees with the backend's")


def _look_at_registration(client: BackendClient, provider: ProviderSettings) -> Findings:
    try:
        config = client.get_permission_provider_config().data
    except OperationMissing:
        yield warning(
            "registration",
            "the backend does not tell where it asks for permissions",
            f"see in its console that it asks the service, at a URL that ends in {provider.path}",
        )
        return
    except ClientError as error:
        yield warning("registration", f"the backend does not tell: {error.message}", "look at the backend")
        return
    yield _look_at_config(config, provider)
    state = config.permission_provider_config
    if config.use_permission_provider and state is not None and state.permission_provider_url:
        yield _ask_the_service(state.permission_provider_url, state.auth_token or "")


def _look_at_config(config: PermissionProviderConfig, provider: ProviderSettings) -> Finding:
    state = config.permission_provider_config
    url = (state.permission_provider_url if state is not None else "") or ""
    if not config.use_permission_provider or not url:
        return warning(
            "registration",
            "the backend does not ask the service for permissions",
            f"register the service there: its URL with {provider.path}, and one of provider.auth_tokens",
        )
    shown = _without_query(url)
    if urlsplit(url).path.rstrip("/") != provider.path.rstrip("/"):
        return warning(
            "registration",
            f"the backend asks {shown}, and provider.path is {provider.path}",
            "register the right URL, unless a proxy in between makes one of the other",
        )
    token = (state.auth_token if state is not None else "") or ""
    if not provider.allow_anonymous and not _is_ours(token, provider):
        return problem(
            "registration",
            f"the backend asks {shown} with {'a token that is none of provider.auth_tokens' if token else 'no token'}",
            "register one of provider.auth_tokens there, or accept its token here",
        )
    return ok("registration", f"the backend asks {shown}, with a token that is accepted")


def _is_ours(token: str, provider: ProviderSettings) -> bool:
    given = token.encode()
    found = [hmac.compare_digest(given, one.get_secret_value().encode()) for one in provider.auth_tokens]
    return any(found)


def _ask_the_service(url: str, token: str) -> Finding:
    """The backend's own question, without anything asked."""
    shown = _without_query(url)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    advice = "see that usher serve runs and that its proxy lets this call through"
    with requests.Session() as session:
        session.trust_env = False
        try:
            with session.post(
                url,
                json={"data": {"requests": []}},
                headers=headers,
                timeout=_PATIENCE,
                allow_redirects=False,
                stream=True,
            ) as answer:
                code = answer.status_code
        except requests.RequestException as error:
            says = f"{shown} does not answer from here ({type(error).__name__})"
            return warning("service", says, advice)
    if code == requests.codes.ok:
        return ok("service", f"{shown} answers")
    return problem("service", f"{shown} answers with {code}", advice)


def _without_query(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"
