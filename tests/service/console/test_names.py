"""Tests of names: records appear by name with the id beside it, and one query for each kind reads a page's names."""

import re
from typing import Any

import pytest
from sqlalchemy import event, insert

from app.access.problems import Problem, ProblemCause, ProblemSort
from app.foundation.database.engine import reading, writing
from app.service.console.names import causes_of, mentions_of, read_names
from app.service.console.problems import show_problem
from app.service.console.settings import Role
from app.service.console.urls import address
from app.sync.ledger.failures import message_digest
from app.sync.ledger.items import ItemKey
from app.sync.ledger.ledger import open_ledger
from app.sync.ledger.tables import ItemFailureRow
from app.sync.plan.stored_access import StoredAccessChange
from tests.service.console.conftest import Office

USER_OF_DOCUMENT = ItemKey("documentUser", "acme", "roadmap", "bob")


def _fail(office: Office, *items: ItemKey) -> None:
    """Parks these items."""
    ledger = open_ledger(office.engine, "http://backend.test", "key", office.time)
    failure = {
        "ledger_id": ledger.ledger_id,
        "deleting": False,
        "fingerprint": "",
        "failures": 10,
        "retry_at": 0,
        "parked": True,
        "message": "no",
        "message_digest": message_digest("no"),
    }
    with writing(office.engine) as connection:
        connection.execute(insert(ItemFailureRow.__table__), [failure | item._asdict() for item in items])


def test_items_show_names_of_users_containers_and_organizations(office: Office) -> None:
    _fail(office, USER_OF_DOCUMENT)
    html = office.browser(Role.VIEWER).get(address("parked"))
    for kind, query, name, item_id in (
        ("user", {"id": "bob", "organization": "acme"}, "Bob", "bob"),
        ("document", {"id": "roadmap", "organization": "acme"}, "Roadmap", "roadmap"),
    ):
        link = address(kind, **query).replace("&", "&amp;")
        assert f'<a href="{link}">{name}</a> <code class="id">{item_id}</code>' in html
    # A column that repeats the organization in every row shows its name alone.
    assert '<a href="/console/organization?id=acme" title="acme">Acme</a>' in html
    assert '<span title="documentUser">document member</span>' in html


def test_failing_items_are_grouped_by_message_and_container(office: Office) -> None:
    items = [ItemKey("documentUser", "acme", "roadmap", user) for user in ("ada", "bob")]
    _fail(
        office, *items, ItemKey("documentUser", "acme", "handbook", "ada"), ItemKey("document", "acme", "", "roadmap")
    )
    html = office.browser(Role.VIEWER).get(address("parked"))
    table = html.partition('aria-label="Items"')[2]
    heads = [" ".join(re.sub(r"<[^>]+>", " ", head).split()) for head in re.findall(r'"colgroup".*?>(.*?)</th>', table)]
    assert heads == [
        "no",
        "Document member of document Handbook handbook",
        "Document members of document Roadmap roadmap",
    ]
    assert "as above" not in html


def test_an_id_that_the_directory_does_not_have_is_shown_alone(office: Office) -> None:
    _fail(office, ItemKey("folderUser", "gone", "old", "nobody"))
    html = office.browser(Role.VIEWER).get(address("parked"))
    for unknown in ("gone", "old", "nobody"):
        assert f'"><code class="id">{unknown}</code></a>' in html


def test_pages_of_an_item_show_names(office: Office) -> None:
    html = office.browser(Role.VIEWER).get(
        address("ledger_item", kind="documentUser", organization="acme", container="roadmap", item="bob")
    )
    assert "<h1>In the backend: Bob</h1>" in html
    for name, item_id in (("Bob", "bob"), ("Roadmap", "roadmap")):
        assert f'>{name}</a> <code class="id">{item_id}</code>' in html
    crumbs = html.partition('<p class="crumbs">')[2].partition("</p>")[0]
    assert re.sub(r"<[^>]+>", "", crumbs) == "Browse / Acme / Roadmap"


@pytest.mark.parametrize("items", [1, 50])
def test_names_take_one_query_for_each_kind(office: Office, items: int) -> None:
    statements: list[str] = []

    def hear(_: Any, __: Any, statement: str, *___: Any) -> None:
        statements.append(statement)

    several = [USER_OF_DOCUMENT, *(ItemKey("folderUser", "acme", f"f{n}", f"u{n}\0") for n in range(items))]
    with reading(office.engine) as connection:
        event.listen(office.engine, "before_cursor_execute", hear)
        names = read_names(connection, [*mentions_of(several), ("organization", "ignored", "")])
        event.remove(office.engine, "before_cursor_execute", hear)
    assert len(statements) == len(("user", "organization", "folder", "document"))
    assert names("user", "any", "bob") == "Bob"
    assert names("document", "acme", "roadmap") == "Roadmap"
    assert names("document", "other", "roadmap") == ""
    assert names("folder", "acme", "f0") == ""


def test_an_alias_is_no_mention_of_the_user_with_this_id() -> None:
    shown = show_problem(
        Problem(
            sort=ProblemSort.AMBIGUOUS,
            source="hr",
            place="",
            cause=ProblemCause.SHARED_ALIAS,
            kind="membership",
            key=("acme", "", "ann"),
            detail=("ann", "ann", "bob"),
        )
    )
    assert shown.sentence == [
        "refers to the user 'ann', an alias of several: ",
        ("user", "acme", "ann"),
        ", ",
        ("user", "acme", "bob"),
        "",
    ]


def test_a_cause_shows_the_fields_that_decisions_read() -> None:
    user = {"kind": "user", "userId": "ann", "name": "Ann", "email": "ann@acme.example", "disabled": True}
    row = StoredAccessChange(
        ordinal=1,
        organization_id="acme",
        kind="document",
        before="viewer",
        after="",
        users=1,
        resources=1,
        pairs=1,
        user_ids=["ann"],
        resource_ids=["plan"],
        names={"causes": [["changed", user]]},
    )
    (cause,) = causes_of(row)
    assert [(field.label, field.text) for field in cause.fields] == [("user", "ann"), ("disabled", "true")]
