"""Domains and email configuration."""

import random
from typing import Any

import pytest
from sqlalchemy import select

from app.backend.security.tables import EMAIL_CONFIG
from app.backend.security.vault import open_vault
from app.backend.workspaces.domain_handlers import stripped_domain
from app.contract.errors import InvalidArgument

from .conftest import BackendWorld, Caller

SECRET = "SG.a-long-secret-of-the-email-service.9f3c"


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("acme.example", "acme.example"),
        ("https://www.Acme.Example/", "acme.example"),
        ("http://acme.example", "acme.example"),
        (" www.acme.example ", "acme.example"),
        ("*.acme.example", "*.acme.example"),
        ("*.www.acme.example", "*.www.acme.example"),
        ("http://www.com", "www.com"),
        ("https://*.acme.example", "*.acme.example"),
        ("localhost:3000", "localhost:3000"),
        ("10.0.0.1", "10.0.0.1"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("a_b.acme.example", "a_b.acme.example"),
    ],
)
def test_domains_are_normalized(text: str, domain: str) -> None:
    assert stripped_domain(text, "f") == domain
    assert stripped_domain(domain, "f") == domain


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "*.",
        "a.*.example",
        "*.10.0.0.1",
        "acme.example/path",
        "acme.example:0",
        "acme.example:65536",
        "acme.example:",
        "ac me.example",
        "-acme.example",
        "acme..example",
        ".acme.example",
        "https://",
        "user@acme.example",
        "x" * 64 + ".example",
        ".".join(["x" * 60] * 5),
        "\u2014.example\u200b\uffff",
        "::1",
    ],
)
def test_invalid_domains_are_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"data\.domains\[0\]: must be a domain"):
        stripped_domain(text, "data.domains[0]")


def test_add_domains_adds_to_every_token_of_the_key(world: BackendWorld) -> None:
    owner = world.workspace()
    key = owner.ids["api_key"]

    def tokens() -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = owner("get_auth_tokens", apiKey=key)["authTokens"]
        return entries

    tenant = Caller(world.app, {"x-service-api-key": key, "x-service-auth-token": tokens()[0]["token"]})

    assert tenant("add_domains", domains=["https://www.acme.example", "acme.example", "*.acme.example"]) == {
        "domainsAdded": ["acme.example", "*.acme.example"]
    }
    assert tenant("add_domains", domains=["beta.example", "ACME.example"]) == {"domainsAdded": ["beta.example"]}
    assert tokens()[0]["domains"] == ["acme.example", "*.acme.example", "beta.example"]
    assert tenant.refused("add_domains", domains=["ok.example", "not ok"])[2].startswith("data.domains[1]: ")
    assert tenant("add_domains", domains=[]) == {"domainsAdded": []}
    assert owner("reset_auth_token", apiKey=key)["newAuthToken"]["domains"] == tokens()[0]["domains"]
    assert len(tokens()[0]["domains"]) == 3


def test_a_key_has_at_most_a_thousand_domains(tenant: Caller) -> None:
    for hundred in range(10):
        tenant("add_domains", domains=[f"d{number}.h{hundred}.example" for number in range(100)])

    assert tenant.refused("add_domains", domains=["one.too.many"])[:2] == (429, "RESOURCE_EXHAUSTED")
    assert tenant("add_domains", domains=["d0.h0.example"]) == {"domainsAdded": []}


def test_email_config_is_merged_and_its_key_hidden(world: BackendWorld, tenant: Caller) -> None:
    assert tenant("update_email_config") == {"useEmailService": False, "emailServiceConfig": {}}
    config = {
        "type": "sendgrid",
        "apiKey": SECRET,
        "fromEmail": "no-reply@acme.example",
        "fromCompany": {"name": "Acme"},
        "triggers": {"comment.add": True},
        "more": [1],
    }

    first = tenant("update_email_config", useEmailService=True, emailServiceConfig=config)
    second = tenant("update_email_config", emailServiceConfig={"triggers": {"comment.update": False}, "type": "x"})
    third = tenant("update_email_config", emailServiceConfig=second["emailServiceConfig"])

    assert first == {"useEmailService": True, "emailServiceConfig": config | {"apiKey": "****9f3c"}}
    changed = {"type": "x", "apiKey": "****9f3c", "triggers": {"comment.add": True, "comment.update": False}}
    assert second == third == {"useEmailService": True, "emailServiceConfig": config | changed}
    with world.engine.connect() as connection:
        row = connection.execute(select(EMAIL_CONFIG)).one()
    assert SECRET not in str(row)
    vault = open_vault(world.settings, random.SystemRandom())
    assert vault.stored.open(row.key_sealed, f"email_config {row.api_key_id}") == SECRET


def test_a_short_key_is_masked_completely_and_an_empty_key_is_removed(tenant: Caller) -> None:
    assert tenant("update_email_config", emailServiceConfig={"apiKey": "short"})["emailServiceConfig"] == {
        "apiKey": "****"
    }
    assert tenant("update_email_config", emailServiceConfig={"apiKey": ""})["emailServiceConfig"] == {}


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"useEmailService": "yes"}, "useEmailService"),
        ({"emailServiceConfig": {"fromEmail": "nobody"}}, "emailServiceConfig.fromEmail"),
        ({"emailServiceConfig": {"triggers": {"comment.add": 1}}}, "emailServiceConfig.triggers"),
        ({"emailServiceConfig": {"more": ["x" * 1000] * 101}}, "emailServiceConfig"),
        ({"emailServiceConfig": {"more": ["\u00e4" * 1000] * 51}}, "emailServiceConfig"),
    ],
)
def test_an_invalid_email_config_is_refused_and_changes_nothing(
    tenant: Caller, data: dict[str, Any], field: str
) -> None:
    before = tenant("update_email_config", useEmailService=True)

    code, status, message = tenant.refused("update_email_config", **data)

    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert message.startswith(f"data.{field}")
    assert tenant("update_email_config") == before
