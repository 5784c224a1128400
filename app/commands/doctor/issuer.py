"""Checks the OpenID Connect issuer of the console."""

from importlib.util import find_spec

from app.commands.doctor.finding import Findings, ok, problem, warning
from app.foundation.clock import Clock
from app.service.console.oidc.calls import IssuerError
from app.settings import Settings


def check_issuer(settings: Settings, *, clock: Clock) -> Findings:
    """Reads the configuration and the keys of the issuer, if one is configured. Signs nobody in."""
    oidc = settings.console.oidc
    if not settings.console.enabled or not oidc.issuer:
        return
    if find_spec("authlib") is None:
        message = "the library for console.oidc is not installed: usher serve refuses to start"
        yield problem("sign-in", message, "pip install 'usher[console]'")
        return
    from app.service.console.oidc.issuer import Issuer

    try:
        keys = Issuer(oidc, redirect_uri=settings.console.public_url, clock=clock).count_keys()
    except IssuerError as error:
        advice = "check console.oidc, and that this machine may connect to it; until then, operators can use tokens"
        yield problem("sign-in", f"{oidc.issuer}: {error}", advice)
        return
    if not keys:
        message = f"{oidc.issuer} has no key that verifies ID tokens"
        yield problem("sign-in", message, "let it sign with RSA keys of at least 2048 bits, or with EC or Ed25519 keys")
        return
    yield ok("sign-in", f"{oidc.issuer} answers as an issuer")
    if not settings.console.tokens and not settings.admin.tokens:
        message = "nobody can sign in while the issuer is unavailable"
        yield warning("sign-in", message, "give an operator a token (console.tokens)")
