"""Serves canaille, an independent issuer of OpenID Connect and SCIM server, with users and groups in memory.

``python canaille_server.py JSON`` serves until it is stopped. It runs in its own process, because canaille changes
process-wide state.
"""

import json
import sys
from datetime import UTC, datetime
from typing import Any

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from werkzeug.serving import run_simple


def app(wanted: dict[str, Any]) -> Any:
    """The issuer as a WSGI application."""
    made = create_app(
        {
            "SECRET_KEY": "of these tests alone",
            "SERVER_NAME": f"localhost:{wanted['port']}",
            "PREFERRED_URL_SCHEME": "http",
            "CANAILLE": {"DATABASE": "memory", "JAVASCRIPT": False, "HTMX": False, "SMTP": None},
            "CANAILLE_OIDC": {},
            "CANAILLE_SCIM": {"ENABLE_SERVER": "scim" in wanted},
        }
    )
    with made.app_context():
        _fill(wanted)
    return made


def _fill(wanted: dict[str, Any]) -> None:
    backend = Backend.instance
    people = {}
    for name in wanted["people"]:
        people[name] = models.User(
            user_name=name,
            formatted_name=name.capitalize(),
            display_name=name,
            family_name=name,
            emails=[f"{name}@{wanted.get('mail_domain', 'example.test')}"],
            password=wanted["password"],
            lock_date=datetime.now(UTC) if name in wanted.get("locked", ()) else None,
        )
        backend.save(people[name])
    for group in sorted({group for groups in wanted["people"].values() for group in groups}):
        members = [people[name] for name, groups in wanted["people"].items() if group in groups]
        backend.save(models.Group(display_name=group, members=members))
    client = models.Client(
        client_id=wanted["client_id"],
        client_secret=wanted["client_secret"],
        client_id_issued_at=datetime.now(UTC),
        client_name="Usher",
        # canaille trusts clients on loopback, and asks for no consent.
        client_uri="http://127.0.0.1",
        redirect_uris=[wanted["redirect_uri"]],
        grant_types=["client_credentials" if "scim" in wanted else "authorization_code"],
        response_types=["code"],
        scope=["openid", "profile", "email", "groups"],
        token_endpoint_auth_method="client_secret_basic",
    )
    backend.save(client)
    client.audience = [client]
    backend.save(client)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    run_simple("localhost", asked["port"], app(asked), threaded=True)
