"""The check of the registration: that the backend asks this service, at the right address, with a token of ours."""

import contextlib
from collections.abc import Callable
from urllib.parse import urlsplit

import orjson
import requests
from urllib3.exceptions import HTTPError as PoolError

from app.client.client import BackendClient
from app.client.errors import ClientError, OperationMissing
from app.client.registration import is_accepted
from app.commands.doctor.finding import Finding, Findings, ok, problem, warning
from app.contract import operations
from app.contract.base import NoParameters
from app.contract.permissions import PermissionProviderConfig
from app.foundation.outbound.failure import CallFailure, FailureKind
from app.foundation.outbound.probe import examined_failure
from app.foundation.outbound.route import Route, address_of
from app.foundation.outbound.session import session_for
from app.service.provider.settings import INSTANCE_HEADER, ProviderSettings
from app.settings import Settings

_PATIENCE = 10.0
_MOST_BYTES = 64 * 1024


def look_at_registration(client: BackendClient, settings: Settings, instance: Callable[[], str | None]) -> Findings:
    """What the backend says about it, and what the address answers that it asks. ``instance`` is the stamp of our own
    access model; None: it cannot be read."""
    provider = settings.provider
    try:
        config = client.call(operations.GET_PERMISSION_PROVIDER_CONFIG, NoParameters()).data
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
        yield _ask_the_service(state.permission_provider_url, state.auth_token or "", settings, instance)


def _look_at_config(config: PermissionProviderConfig, provider: ProviderSettings) -> Finding:
    state = config.permission_provider_config
    url = (state.permission_provider_url if state is not None else "") or ""
    if not config.use_permission_provider or not url:
        return warning(
            "registration",
            "the backend does not ask the service for permissions",
            f"usher provider register --url URL (it ends in {provider.path}), or register it in the backend's console",
        )
    shown = _without_query(url)
    token = (state.auth_token if state is not None else "") or ""
    if not provider.allow_anonymous and not is_accepted(token, provider.auth_tokens):
        return problem(
            "registration",
            f"the backend asks {shown} with "
            + ("a token that is not among provider.auth_tokens" if token else "no token"),
            "register one of provider.auth_tokens there (usher provider register), or accept its token here",
        )
    path = urlsplit(shown).path
    if path == provider.path:
        return ok("registration", f"the backend asks {shown}, with a token that is accepted")
    if path.rstrip("/") == provider.path.rstrip("/"):
        slash = f"{'a' if path.endswith('/') else 'no'} slash at its end"
        return warning(
            "registration",
            f"the backend asks {shown}, with {slash}, which is another path than {provider.path} (provider.path)",
            f"register the URL so that it ends in {provider.path}",
        )
    return warning(
        "registration",
        f"the backend asks {shown}, and provider.path is {provider.path}",
        "register the right URL, unless a proxy in between makes one of the other",
    )


_CERTAIN = frozenset(
    {
        FailureKind.NAME,
        FailureKind.REFUSED,
        FailureKind.NO_TLS,
        FailureKind.ONLY_TLS,
        FailureKind.EXPIRED,
        FailureKind.OTHER_NAME,
        FailureKind.ADDRESS,
    }
)
"""What the backend meets as well as we do. Whether it comes through a firewall that we do not, or knows an authority
that we do not, is for it to say."""


def _ask_the_service(url: str, token: str, settings: Settings, instance: Callable[[], str | None]) -> Finding:
    """The backend's own question, without anything asked."""
    shown = _without_query(url)
    # A run may change the access model between the answer and our look.
    own = {instance()}
    answer = _answer(url, token, Route(settings.backend.ca_file))
    if isinstance(answer, CallFailure) and settings.backend.proxy.get_secret_value():
        # A network may have no other way out.
        answer = _answer(url, token, Route(settings.backend.ca_file, settings.backend.proxy))
    if isinstance(answer, CallFailure):
        kind = problem if answer.kind in _CERTAIN else warning
        return kind("service", f"{shown} does not answer from here: {answer.says}", _what_to_do(answer, settings))
    code, is_provider, stamp = answer
    own.add(instance())
    if is_provider and stamp and None not in own and stamp not in own:
        return problem(
            "service",
            f"another Usher, with another database, answers at {shown} and accepts the token",
            "end it, or register the URL at which this one listens; give each installation tokens of its own",
        )
    if is_provider:
        return ok("service", f"{shown} answers")
    if _is_the_backend(url, settings):
        return problem(
            "service",
            f"the backend asks itself: {shown} is the backend, which answers with {code}",
            f"register where usher serve listens (server.port is {settings.server.port})",
        )
    return _wrong_answer(shown, code, settings)


def _wrong_answer(shown: str, code: int, settings: Settings) -> Finding:
    provider, port = settings.provider, settings.server.port
    if code in {401, 403}:
        return problem(
            "service",
            f"{shown} answers with {code}: it does not know the token that the backend shows",
            f"see that it is this Usher and no other (server.port is {port}), and that it was started, or sent SIGHUP,"
            " after provider.auth_tokens were changed",
        )
    if code in {404, 405}:
        return problem(
            "service",
            f"{shown} answers with {code}: nothing answers permission questions at this path",
            f"register the URL of usher serve (server.port is {port}) so that it ends in {provider.path}",
        )
    if code in {502, 503, 504}:
        return problem(
            "service",
            f"{shown} answers with {code}: usher serve does not run behind it, or cannot answer yet",
            "see that usher serve runs there and what its /readyz says",
        )
    return problem(
        "service",
        f"{shown} answers with {code}, and not as a permission provider does",
        f"register the URL of usher serve (server.port is {port}) with {provider.path}",
    )


def _answer(url: str, token: str, route: Route) -> tuple[int, bool, str] | CallFailure:
    """The status, whether it is a permission provider that answers, and the stamp of its access model; or why there is
    no answer."""
    headers = {INSTANCE_HEADER: "?"} | ({"authorization": f"Bearer {token}"} if token else {})
    question: dict[str, object] = {"data": {"requests": []}}
    with session_for(route) as session:
        try:
            with session.post(
                url, json=question, headers=headers, timeout=_PATIENCE, allow_redirects=False, stream=True
            ) as answer:
                body = answer.raw.read(_MOST_BYTES, decode_content=True)
                stamp = answer.headers.get(INSTANCE_HEADER, "")
                return answer.status_code, _is_providers(answer.status_code, body), stamp
        except (requests.RequestException, PoolError, OSError, ValueError) as error:
            try:
                return examined_failure(error, url, route)
            except ValueError:
                return CallFailure(FailureKind.ADDRESS, "the address cannot be used")


def _is_providers(code: int, body: bytes) -> bool:
    """A provider gives results in ``data``, or refuses a call without questions."""
    told: object = None
    with contextlib.suppress(orjson.JSONDecodeError):
        told = orjson.loads(body)
    if not isinstance(told, dict):
        return False
    if code == requests.codes.ok:
        return isinstance(told.get("data"), list)
    error = told.get("error")
    return code == requests.codes.bad_request and isinstance(error, dict) and error.get("status") == "INVALID_ARGUMENT"


def _is_the_backend(url: str, settings: Settings) -> bool:
    with contextlib.suppress(ValueError):
        return address_of(url) == address_of(settings.backend.base_url)
    return False


def _what_to_do(failure: CallFailure, settings: Settings) -> str:
    port = settings.server.port
    return {
        FailureKind.NAME: "register the URL again with the right host name",
        FailureKind.REFUSED: f"start usher serve there, or register where it listens (server.port is {port})",
        FailureKind.NO_TLS: "register it with http://, or the port of the proxy that speaks TLS for it",
        FailureKind.ONLY_TLS: "register it with https://",
        FailureKind.UNTRUSTED: "see that the backend trusts who signed it; backend.ca_file makes this machine trust it",
        FailureKind.OTHER_NAME: "register it under the name that its certificate is for",
        FailureKind.EXPIRED: "renew the certificate of the proxy before usher serve",
    }.get(failure.kind, "see that usher serve runs there and that this machine, and the backend, may connect to it")


def _without_query(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "something that is not an address"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
