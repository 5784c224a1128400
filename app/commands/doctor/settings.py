"""Checks the settings, and warns of proxies in the environment, which Usher ignores."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from app.commands.bootstrap.requirements import SHORTEST_TOKEN, has_credentials, short_tokens
from app.commands.doctor.finding import Findings, ok, problem, warning
from app.foundation.configuration.loading import Configuration
from app.foundation.outbound.urls import is_plaintext
from app.foundation.text import are, counted
from app.settings import Settings


def check_settings(configuration: Configuration[Settings], environment: Mapping[str, str]) -> Findings:
    """Checks the settings. ``environment`` may contain proxies that Usher ignores."""
    settings = configuration.settings
    # Sections and lists of sections have origins, too, and are no values.
    sections = {key.rpartition(separator)[0] for key in configuration.origins for separator in (".", "[")}
    number = len(configuration.origins.keys() - sections)
    yield ok("settings", f"valid; {counted(number, 'value')} {are(number)} set, the others are defaults")
    yield from _check_tokens(settings)
    if not settings.sync.schedule:
        advice = 'set sync.schedule, for example to "*/15 * * * *"'
        yield warning("schedule", "there are no scheduled syncs", advice)
    if not settings.notifications.webhook.url and not settings.notifications.email.host:
        yield warning(
            "notifications",
            "nobody is notified if deletes are held, items or runs fail, a worker dies, or a source cannot be read",
            "set notifications.webhook or notifications.email",
        )
    yield from _check_connections(settings, environment)


def _check_connections(settings: Settings, environment: Mapping[str, str]) -> Findings:
    """Warns of credentials without encryption, and of proxies that calls do not use."""
    backend, webhook = settings.backend, settings.notifications.webhook
    if has_credentials(settings) and is_plaintext(backend.base_url, backend.proxy.get_secret_value()):
        message = f"the credentials are sent to {backend.base_url} without encryption"
        yield warning("backend", message, "use an https address")
    for section, url, proxy in (
        ("backend", backend.base_url, backend.proxy),
        ("notifications.webhook", webhook.url, webhook.proxy),
    ):
        variable = "" if proxy.get_secret_value() else _ignored_proxy(url, environment)
        if variable:
            message = f"{variable} is set in the environment, which Usher ignores: calls to {section} are direct"
            advice = f"name the proxy in {section}.proxy if it is needed, or add the host to NO_PROXY"
            yield warning("proxy", message, advice)


def _check_tokens(settings: Settings) -> Findings:
    provider = settings.provider
    if provider.allow_anonymous:
        message = "anyone who reaches the service may ask for anybody's permissions"
        yield warning("provider", message, "set provider.auth_tokens, and provider.allow_anonymous: false")
    elif not provider.auth_tokens:
        advice = "set provider.auth_tokens to at least one"
        yield problem("provider", "no token is accepted: usher serve refuses to start", advice)
    admin = {token.get_secret_value() for token in settings.admin.tokens}
    if not admin.isdisjoint(token.get_secret_value() for token in provider.auth_tokens):
        message = "a token is in provider.auth_tokens and in admin.tokens: the backend's token can approve deletes"
        yield warning("admin", message, "use different tokens")
    if short := short_tokens(settings):
        message = f"{', '.join(short)}: shorter than {SHORTEST_TOKEN} characters; usher serve refuses to start"
        yield problem("tokens", message, "create others with openssl rand -hex 24")
    if not admin:
        yield warning("admin", "nobody can use /resync or /permissions/explain", "set admin.tokens to at least one")


def _ignored_proxy(url: str, environment: Mapping[str, str]) -> str:
    """The variable with the proxy that other programs would use for ``url``. Empty if there is none."""
    parts = urlsplit(url)
    names = [f"{parts.scheme}_proxy", "all_proxy"] if url else []
    value = next((each for name in names for each in (name.upper(), name) if environment.get(each)), "")
    exempt = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    host = parts.hostname or ""
    for entry in exempt.split(","):
        name = entry.strip().removeprefix("*").removeprefix(".").partition(":")[0].lower()
        if entry.strip() == "*" or (name and (host == name or host.endswith(f".{name}"))):
            return ""
    return value
