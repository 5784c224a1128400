"""Explanations of denials name the records whose alias several users have."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine

from app.access.decision.decide import DecisionPolicy, PlainQuestion
from app.access.decision.explain import explain
from app.access.records import AccessType, Document, Folder, Grant, Membership, Organization, Record, User
from app.access.shared_aliases import with_shared_aliases
from app.access.sql_view import SqlView
from app.commands.schema import METADATA
from app.foundation.database.engine import open_engine, reading
from tests.access.test_merging import Read, run_refresh
from tests.tables import make_tables

NOW = datetime(2026, 11, 1, tzinfo=UTC)
RECORDS: list[Record] = [
    Organization(organization_id="acme", organization_name="Acme"),
    User(user_id="ada", name="Ada", email="", aliases=("ann@acme.example",)),
    User(user_id="bob", name="Bob", email="", aliases=("ann@acme.example", "bob@acme.example")),
    User(user_id="cem", name="Cem", email=""),
    Folder(organization_id="acme", folder_id="plans", folder_name="Plans"),
    Document(
        organization_id="acme",
        document_id="plan",
        document_name="Plan",
        folder_id="plans",
        access_type=AccessType.RESTRICTED,
    ),
    Document(organization_id="acme", document_id="other", document_name="Other", access_type=AccessType.RESTRICTED),
    Grant(organization_id="acme", document_id="plan", user_alias="ann@acme.example"),
    Grant(organization_id="acme", document_id="other", user_alias="bob@acme.example"),
]
NAMED = "of source 'app' names 'ann@acme.example', an alias of several users: 'ada', 'bob'."


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = open_engine(database_url)
    make_tables(made, METADATA)
    yield made
    made.dispose()


def reason(engine: Engine, user: str, document: str) -> str:
    question = PlainQuestion(user_id=user, type="document", resource_id=document, organization_id="acme", context=None)
    with reading(engine) as connection:
        view = SqlView(connection)
        return with_shared_aliases(connection, question, explain(view, question, NOW, DecisionPolicy())).reason


def test_denial_names_the_grant_whose_alias_several_users_have(engine: Engine) -> None:
    run_refresh(engine, {"app": Read("complete", [(one, "") for one in RECORDS])})
    for user in ("ada", "bob"):
        assert reason(engine, user, "plan").endswith(f"no grant lets {user} in; a grant {NAMED}")
    assert "alias" not in reason(engine, "cem", "plan")
    assert "alias" not in reason(engine, "ada", "other")
    assert reason(engine, "bob", "other").startswith("Allowed")


def test_denial_names_the_membership_whose_alias_several_users_have(engine: Engine) -> None:
    member = Membership(organization_id="acme", user_alias="ann@acme.example")
    run_refresh(engine, {"app": Read("complete", [(one, "") for one in [*RECORDS, member]])})
    assert reason(engine, "ada", "other").endswith(f"; a membership {NAMED}")
