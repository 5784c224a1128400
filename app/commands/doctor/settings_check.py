"""The check of the settings: that they, each for itself, make sense for a real installation."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from app.commands.bootstrap.requirements import SHORTEST_TOKEN, has_credentials, short_tokens
from app.commands.doctor.finding import Findings, ok, problem, warning
from app.foundation.configuration.loading import Configuration
from app.settings import Settings


def look_at_settings(found: Configuration[Settings], environment: Mapping[str, str]) -> Findings:
    """What can be told from the settings, and from proxies in the environment that they do not name."""
    settings = found.settings
    sections = {key.rpartition(".")[0] for key in found.origins} | {key.rpartition("[")[0] for key in found.origins}
    given = len(found.origins.keys() - sections)
    yield ok("settings", f"can be used; {given} {'value is' if given == 1 else 'values are'} given, the others default")
    if settings.provider.allow_anonymous:
        yield warning(
            "provider",
            "anyone who reaches the service may ask for anybody's permissions",
            "set provider.auth_tokens, and provider.allow_anonymous: false",
        )
    elif not settings.provider.auth_tokens:
        yield problem(
            "provider", "no token is accepted: usher serve refuses to start", "set provider.auth_tokens to at least one"
        )
    shared = {token.get_secret_value() for token in settings.provider.auth_tokens} & {
        token.get_secret_value() for token in settings.admin.tokens
    }
    if shared:
        yield warning(
            "admin",
            "a token stands in provider.auth_tokens and in admin.tokens: who holds the backend's can approve deletes",
            "give each a token of its own",
        )
    if short := short_tokens(settings):
        yield problem(
            "tokens",
            f"{', '.join(short)}: shorter than {SHORTEST_TOKEN} characters; usher serve refuses to start",
            "make others with openssl rand -hex 24",
        )
    if not settings.admin.tokens:
        yield warning("admin", "nobody can use /resync or /permissions/explain", "set admin.tokens to at least one")
    if not settings.sync.schedule:
        yield warning("schedule", "nothing syncs by itself", 'set sync.schedule, for example to "*/15 * * * *"')
    if not settings.notifications.webhook.url and not settings.notifications.email.host:
        yield warning(
            "notifications",
            "nobody is told when deletes are held, items or runs fail, a worker dies, or a source cannot be read",
            "set notifications.webhook or notifications.email",
        )
    if has_credentials(settings) and _in_the_clear(settings.backend.base_url):
        yield warning(
            "backend", f"the credentials travel in the clear to {settings.backend.base_url}", "use an https address"
        )
    for section, url, proxy in (
        ("backend", settings.backend.base_url, settings.backend.proxy),
        ("notifications.webhook", settings.notifications.webhook.url, settings.notifications.webhook.proxy),
    ):
        variable = "" if proxy.get_secret_value() else _ignored_proxy(url, environment)
        if variable:
            yield warning(
                "proxy",
                f"{variable} is set in the environment, which has no say here: calls to {section} go there directly",
                f"name the proxy in {section}.proxy if it is needed, or put the host into NO_PROXY",
            )


def _ignored_proxy(url: str, environment: Mapping[str, str]) -> str:
    """The variable by which other programs would go through a proxy to ``url``; empty when there is none."""
    parts = urlsplit(url)
    names = [f"{parts.scheme}_proxy", "all_proxy"] if url else []
    given = next((each for name in names for each in (name.upper(), name) if environment.get(each)), "")
    exempt = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    host = parts.hostname or ""
    for entry in exempt.split(","):
        name = entry.strip().removeprefix("*").removeprefix(".").partition(":")[0].lower()
        if entry.strip() == "*" or (name and (host == name or host.endswith(f".{name}"))):
            return ""
    return given


def _in_the_clear(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return True
