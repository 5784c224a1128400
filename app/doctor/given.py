"""Do the settings, each for itself, make sense for a real installation?"""

import ipaddress
from urllib.parse import urlsplit

from app.bootstrap import has_credentials
from app.configuration.loading import Configuration
from app.doctor.finding import Findings, ok, problem, warning
from app.settings import Settings


def look_at_settings(found: Configuration[Settings]) -> Findings:
    """What can be told from the settings alone."""
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
    if not settings.admin.tokens:
        yield warning("admin", "nobody can use /resync or /permissions/explain", "set admin.tokens to at least one")
    if not settings.sync.schedule:
        yield warning("schedule", "nothing syncs by itself", 'set sync.schedule, as to "*/15 * * * *"')
    if not settings.notifications.webhook.url and not settings.notifications.email.host:
        yield warning(
            "notifications",
            "nobody is told when deletes are held, a run fails or is missed, or a source cannot be read",
            "set notifications.webhook or notifications.email",
        )
    if has_credentials(settings) and _in_the_clear(settings.backend.base_url):
        yield warning(
            "backend", f"the credentials travel in the clear to {settings.backend.base_url}", "use an https address"
        )


def _in_the_clear(url: str) -> bool:
    parts = urlsplit(url)
    if parts.scheme == "https" or parts.hostname == "localhost":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return True
