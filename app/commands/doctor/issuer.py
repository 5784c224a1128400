"""The check of the issuer through which people sign in at the console: that it answers as one."""

from importlib.util import find_spec

from app.commands.doctor.finding import Findings, ok, problem, warning
from app.foundation.clock import Clock
from app.service.console.oidc.calls import IssuerError
from app.settings import Settings


def look_at_issuer(settings: Settings, *, clock: Clock) -> Findings:
    """Nothing where none is configured. Asks it what it says of itself and which keys it has, and signs nobody in."""
    oidc = settings.console.oidc
    if not settings.console.enabled or not oidc.issuer:
        return
    if find_spec("authlib") is None:
        yield problem(
            "sign-in",
            "the library for console.oidc is not installed: usher serve refuses to start",
            "pip install 'usher[console]'",
        )
        return
    from app.service.console.oidc.issuer import Issuer

    try:
        keys = Issuer(oidc, redirect_uri=settings.console.public_url, clock=clock).look()
    except IssuerError as error:
        yield problem(
            "sign-in",
            f"{oidc.issuer}: {error}",
            "see that console.oidc is right and that this machine may connect there; tokens open the console meanwhile",
        )
        return
    if not keys:
        yield problem(
            "sign-in",
            f"{oidc.issuer} has no key that verifies ID tokens",
            "have it sign with RSA keys of 2048 bits or more, or with EC or Ed25519 keys",
        )
        return
    yield ok("sign-in", f"{oidc.issuer} answers as an issuer")
    if not settings.console.tokens and not settings.admin.tokens:
        yield warning(
            "sign-in",
            "nobody can sign in while the issuer is away",
            "give somebody a token (console.tokens)",
        )
