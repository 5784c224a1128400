import multiprocessing
import random
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, event

from app.backend.embedders import open_embedder
from app.backend.embedders.embedder import Embedder
from app.backend.judgments.index import JudgmentIndexes
from app.backend.judgments.judgment_handlers import JudgmentQuery, JudgmentSearcher
from app.backend.judgments.record import parse_judgment
from app.backend.judgments.store import (
    delete_judgments_of_documents,
    delete_judgments_of_organizations,
    move_judgments,
    prepare_judgments,
    reembed_judgments,
    write_judgments,
)
from app.backend.scope import Scope
from app.contract.errors import InvalidArgument
from app.foundation.database.engine import open_engine, reading, writing
from tests.worlds.clock import NOON

from .conftest import BackendWorld, Caller

NOW = int(NOON.timestamp() * 1000)
DAY = 24 * 60 * 60 * 1000


def judgment(record_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "recordId": record_id,
        "organizationId": "acme",
        "decision": "approve",
        "reasoning": f"reason {record_id}",
        "actionUser": {"userId": "ada", "name": "Ada"},
        "createdAt": NOW,
    } | fields


def write(database_url: str, api_key: str, *records: dict[str, Any]) -> None:
    """Writes judgments as an import does, also in other processes."""
    engine = open_engine(database_url)
    prepared = prepare_judgments([parse_judgment(record) for record in records], open_embedder("hashing"))
    with writing(engine) as connection:
        write_judgments(connection, api_key, prepared, NOW)
    engine.dispose()


@pytest.fixture
def add(world: BackendWorld, tenant: Caller) -> Callable[..., None]:
    def add(*records: dict[str, Any]) -> None:
        write(world.settings.database_url, tenant.ids["api_key"], *records)

    return add


def search(caller: Caller, **data: Any) -> dict[str, Any]:
    response = caller.call("search_judgments", **{"query": "price"} | data)
    assert response.status_code == 200, response.json
    body: dict[str, Any] = response.json or {}
    assert set(body) == {"result"}
    assert set(body["result"]) == {"results", "totalInScope", "searchLatencyMs"}
    assert body["result"]["searchLatencyMs"] >= 0
    result: dict[str, Any] = body["result"]
    return result


def ids(result: dict[str, Any]) -> list[str]:
    return [found["recordId"] for found in result["results"]]


def test_search_ranks_by_meaning(tenant: Caller, add: Callable[..., None]) -> None:
    add(
        judgment("price", reasoning="The price is far above the market rate.", confidence=0.9),
        judgment(
            "tone", reasoning="The wording is rude to customers.", decision="reject", content="Our prices are best"
        ),
        judgment(
            "legal",
            reasoning="The liability clause is missing.",
            agent={"name": "Reviewer", "model": "m"},
            content="Liability is unlimited",
        ),
    )

    result = search(tenant, query="is the price above market")

    assert ids(result)[0] == "price"
    assert result["totalInScope"] == 3
    first = result["results"][0]
    assert 0 < first.pop("similarity") <= 1
    assert first == {
        "recordId": "price",
        "reasoning": "The price is far above the market rate.",
        "decision": "approve",
        "confidence": 0.9,
        "actionUser": {"userId": "ada", "name": "Ada"},
        "createdAt": NOW,
        "scope": "apiKey",
        "agent": None,
    }
    assert "confidence" not in result["results"][1]
    assert ids(search(tenant, query="price", embeddingType="content"))[0] == "tone"
    # A judgment without content is in scope, but not found by its content.
    content = search(tenant, query="liability", embeddingType="content")
    assert ids(content) == ["legal", "tone"]
    assert content["totalInScope"] == 3
    assert content["results"][0]["agent"] == {"name": "Reviewer", "model": "m"}
    similarities = [found["similarity"] for found in search(tenant, query="reject. The wording is rude")["results"]]
    assert similarities == sorted(similarities, reverse=True)


def test_the_latency_is_measured(
    world: BackendWorld, tenant: Caller, add: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(judgment("r"))
    nearest = JudgmentSearcher.nearest

    def slowly(*arguments: Any) -> Any:
        world.clock.move_on(milliseconds=12.5)
        return nearest(*arguments)

    monkeypatch.setattr(JudgmentSearcher, "nearest", slowly)
    assert search(tenant)["searchLatencyMs"] == 12.5


def test_the_default_scope_follows_from_the_ids(tenant: Caller, add: Callable[..., None]) -> None:
    add(
        judgment("a", documentId="d"),
        judgment("b", documentId="e"),
        judgment("c"),
        judgment("o", organizationId="other", documentId="d"),
    )
    cases: list[tuple[dict[str, Any], str, set[str]]] = [
        ({}, "apiKey", {"a", "b", "c", "o"}),
        ({"organizationId": "acme"}, "organization", {"a", "b", "c"}),
        ({"organizationId": "acme", "documentId": "d"}, "document", {"a"}),
        ({"organizationId": "acme", "documentId": "d", "scope": "organization"}, "organization", {"a", "b", "c"}),
        ({"organizationId": "acme", "documentId": "d", "scope": "apiKey"}, "apiKey", {"a", "b", "c", "o"}),
        ({"organizationId": "nobody"}, "organization", set()),
    ]
    for data, scope, expected in cases:
        for shortcut in ({}, {"recencyDays": 1}):
            result = search(tenant, **data, **shortcut)
            assert set(ids(result)) == expected, data
            assert result["totalInScope"] == len(expected)
            assert {found["scope"] for found in result["results"]} <= {scope}
        assert {found["recordId"] for found in tenant("query_judgments", **data)} == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"scope": "document", "organizationId": "acme"}, "data: scope document requires documentId"),
        ({"scope": "organization"}, "data: scope organization requires organizationId"),
        ({"documentId": "d"}, "data: documentId requires organizationId"),
        ({"filters": {"annotationId": "a"}}, "data: filters.annotationId requires organizationId"),
        ({"filters": {"judgeType": "robot"}}, "data.filters.judgeType: must be 'human' or 'agent'"),
        ({"embeddingType": "title"}, "data.embeddingType: must be 'review' or 'content'"),
        (
            {"filters": {"dateRange": {"start": "2026-11-21", "end": NOW}}},
            "data.filters.dateRange: start must not be after end",
        ),
        ({"query": ""}, "data.query: must not be empty"),
        ({"query": "", "recencyDays": 3}, "data.query: must not be empty"),
    ],
)
def test_invalid_searches_are_refused(tenant: Caller, data: dict[str, Any], message: str) -> None:
    assert tenant.refused("search_judgments", **{"query": "a"} | data) == (400, "INVALID_ARGUMENT", message)


def test_limits_are_enforced(tenant: Caller, add: Callable[..., None]) -> None:
    add(*(judgment(f"r{number:03}", annotationId="t", organizationId="acme") for number in range(120)))
    shortcuts: list[dict[str, Any]] = [
        {},
        {"recencyDays": 1},
        {"organizationId": "acme", "filters": {"annotationId": "t"}},
    ]
    for data in shortcuts:
        assert len(search(tenant, **data)["results"]) == 10
        for limit in (1, 2, 49, 50):
            assert len(search(tenant, **data, limit=limit)["results"]) == limit
            assert search(tenant, **data, limit=limit)["totalInScope"] == 120
        for limit in (0, 51):
            assert "data.limit" in tenant.refused("search_judgments", query="a", **data, limit=limit)[2]
    assert len(tenant("query_judgments")) == 20
    for limit in (1, 99, 100):
        assert len(tenant("query_judgments", limit=limit)) == limit
    for limit in (0, 101):
        assert "data.limit" in tenant.refused("query_judgments", limit=limit)[2]
    for days in (1, 365):
        assert search(tenant, recencyDays=days)["totalInScope"] == 120
    for days in (0, 366):
        assert "data.recencyDays" in tenant.refused("search_judgments", query="a", recencyDays=days)[2]


def test_filters_apply_to_every_kind_of_search(tenant: Caller, add: Callable[..., None]) -> None:
    add(
        judgment("plain", annotationId="t"),
        judgment("rejected", annotationId="t", decision="reject"),
        judgment("agents", annotationId="t", agent={"name": "bot"}),
        judgment("overridden", annotationId="t", agent={"name": "bot"}, judgeType="human"),
        judgment("contract", annotationId="t", contentType="contract"),
        judgment("bobs", annotationId="t", actionUser={"userId": "bob"}),
        judgment("reviewed", annotationId="t", actionUser={"name": "Eve"}, reviewerId="eve"),
        judgment("old", annotationId="t", createdAt="2026-01-01T00:00:00Z"),
    )
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"decision": "reject"}, {"rejected"}),
        ({"decision": "Reject"}, set()),
        ({"judgeType": "agent"}, {"agents"}),
        ({"contentType": "contract"}, {"contract"}),
        ({"reviewerId": "bob"}, {"bobs"}),
        ({"reviewerId": "eve"}, {"reviewed"}),
        ({"reviewerId": "ada", "decision": "approve", "judgeType": "human", "contentType": "contract"}, {"contract"}),
        ({"dateRange": {"end": "2026-01-01T00:00:00Z"}}, {"old"}),
        ({"dateRange": {"end": "2025-12-31T23:59:59.999+00:00"}}, set()),
        ({"dateRange": {"start": "2026-01-01T01:00:00+01:00", "end": "2026-01-01"}}, {"old"}),
        ({"dateRange": {"start": NOW}, "decision": "reject"}, {"rejected"}),
        ({"dateRange": {"start": NOW + 1}}, set()),
    ]
    for filters, expected in cases:
        assert set(ids(search(tenant, filters=filters))) == expected, filters
        thread = search(tenant, organizationId="acme", filters=filters | {"annotationId": "t"})
        assert set(ids(thread)) == expected, filters
        assert {found["recordId"] for found in tenant("query_judgments", filters=filters)} == expected
        if "dateRange" not in filters:
            assert set(ids(search(tenant, filters=filters, recencyDays=365))) == expected


def test_a_thread_is_returned_oldest_first_whatever_the_query(tenant: Caller, add: Callable[..., None]) -> None:
    add(
        judgment("third", annotationId="t", createdAt=NOW),
        judgment("first", annotationId="t", createdAt=NOW - 2 * DAY),
        judgment("second", annotationId="t", createdAt=NOW - DAY, documentId="d"),
        judgment("elsewhere", annotationId="u"),
        judgment("theirs", annotationId="t", organizationId="other"),
    )
    thread: dict[str, Any] = {"organizationId": "acme", "filters": {"annotationId": "t"}}

    result = search(tenant, query="nothing like it", **thread)

    assert ids(result) == ["first", "second", "third"]
    assert {found["similarity"] for found in result["results"]} == {1.0}
    assert result["totalInScope"] == 4
    assert ids(search(tenant, **thread, limit=2)) == ["first", "second"]
    assert ids(search(tenant, **thread, scope="apiKey")) == ["first", "second", "third"]
    assert ids(search(tenant, **thread, documentId="d")) == ["second"]
    assert ids(search(tenant, **thread, recencyDays=1)) == ["second", "third"]
    assert [found["recordId"] for found in tenant("query_judgments", **thread)] == ["third", "second", "first"]


def test_recency_returns_the_newest_in_the_window(tenant: Caller, add: Callable[..., None]) -> None:
    add(
        judgment("edge", createdAt=NOW - 2 * DAY),
        judgment("new", createdAt=NOW),
        judgment("before", createdAt=NOW - 2 * DAY - 1),
        judgment("mid", createdAt=NOW - DAY),
        judgment("tomorrow", createdAt=NOW + 1),
    )

    result = search(tenant, recencyDays=2, filters={"dateRange": {"start": NOW, "end": NOW}})

    assert ids(result) == ["new", "mid", "edge"]
    assert {found["similarity"] for found in result["results"]} == {1.0}
    assert result["totalInScope"] == 5
    assert ids(search(tenant, recencyDays=2, limit=1)) == ["new"]


def test_query_returns_all_fields_of_a_judgment(tenant: Caller, add: Callable[..., None]) -> None:
    add(judgment("r", documentId="d", contentType="page", annotationId="t", content="text", stars=5, reviewerId="eve"))

    assert tenant("query_judgments") == [
        {
            "recordId": "r",
            "organizationId": "acme",
            "documentId": "d",
            "annotationId": "t",
            "decision": "approve",
            "reasoning": "reason r",
            "actionUser": {"userId": "ada", "name": "Ada"},
            "judgeType": "human",
            "contentType": "page",
            "reviewerId": "eve",
            "content": "text",
            "stars": 5,
            "createdAt": NOW,
            "scope": "apiKey",
        }
    ]


def test_api_keys_have_separate_judgments(world: BackendWorld, tenant: Caller, add: Callable[..., None]) -> None:
    other = world.tenant()
    add(judgment("same", reasoning="mine", annotationId="t"))
    write(world.settings.database_url, other.ids["api_key"], judgment("same", reasoning="theirs", annotationId="t"))

    for caller, reasoning in ((tenant, "mine"), (other, "theirs")):
        for data in ({}, {"recencyDays": 1}, {"organizationId": "acme", "filters": {"annotationId": "t"}}):
            result = search(caller, **data)
            assert [found["reasoning"] for found in result["results"]] == [reasoning]
            assert result["totalInScope"] == 1
        assert [found["reasoning"] for found in caller("query_judgments")] == [reasoning]


def test_searches_see_writes_of_another_process(world: BackendWorld, tenant: Caller, add: Callable[..., None]) -> None:
    add(judgment("one"))
    assert ids(search(tenant)) == ["one"]
    arguments = (
        world.settings.database_url,
        tenant.ids["api_key"],
        judgment("two"),
        judgment("one", decision="reject"),
    )
    process = multiprocessing.get_context("spawn").Process(target=write, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode == 0

    assert sorted(ids(search(tenant))) == ["one", "two"]
    assert search(tenant)["totalInScope"] == 2
    assert ids(search(tenant, filters={"decision": "reject"})) == ["one"]


@pytest.mark.parametrize("field", ["recordId", "organizationId", "decision"])
def test_a_judgment_without_a_required_field_is_refused(field: str) -> None:
    record = judgment("r")
    del record[field]
    with pytest.raises(InvalidArgument, match=f" {field}: field required"):
        parse_judgment(record)


def test_indexes_agree_with_the_database(world: BackendWorld) -> None:
    """After writes, replacements, moves and deletions, searches return what a scan of all records returns."""
    engine, embedder = world.engine, open_embedder("hashing")
    searches = [JudgmentSearcher(embedder, JudgmentIndexes(size)) for size in (0, 2**30)]
    draw = random.Random(7)
    records: dict[str, dict[str, dict[str, Any]]] = {"key1": {}, "key2": {}}
    words = ["price", "tone", "legal", "scope", "style", "risk"]
    for _ in range(25):
        key = draw.choice(sorted(records))
        held = records[key]
        scope = Scope(key, draw.choice(["acme", "other"]))
        document = draw.choice("de")
        with writing(engine) as connection:
            action = draw.randrange(8)
            if action == 0:
                delete_judgments_of_documents(connection, scope, [document])
                in_document = [r for r, item in held.items() if _is_in(item, scope, document)]
                for record_id in in_document:
                    del held[record_id]
            elif action == 1:
                move_judgments(connection, scope, document, "f")
                for item in held.values():
                    if _is_in(item, scope, document):
                        item["documentId"] = "f"
            elif action == 2 and draw.random() < 0.3:
                delete_judgments_of_organizations(connection, key, [scope.organization_id])
                for record_id in [r for r, item in held.items() if item["organizationId"] == scope.organization_id]:
                    del held[record_id]
            else:
                fresh = [
                    judgment(
                        f"r{draw.randrange(40)}",
                        organizationId=scope.organization_id,
                        documentId=document,
                        decision=draw.choice(["approve", "reject"]),
                        reasoning=" ".join(draw.choices(words, k=5)),
                        content=draw.choice([None, " ".join(draw.choices(words, k=3))]),
                        createdAt=NOW + draw.randrange(1000),
                    )
                    for _ in range(draw.randrange(12))
                ]
                prepared = prepare_judgments([parse_judgment(record) for record in fresh], embedder)
                write_judgments(connection, key, prepared, NOW)
                held.update({item["recordId"]: item for item in fresh})
        for search in searches:
            _compare(world, search, embedder, records, draw.choice(words))


def _is_in(record: dict[str, Any], scope: Scope, document: str) -> bool:
    return (record["organizationId"], record["documentId"]) == (scope.organization_id, document)


def _compare(
    world: BackendWorld,
    search: JudgmentSearcher,
    embedder: Embedder,
    records: dict[str, dict[str, dict[str, Any]]],
    query: str,
) -> None:
    (vector,) = embedder.embed([query])
    for key, held in records.items():
        asked = JudgmentQuery(key, {"organization_id": "acme"}, {"decision": "reject"})
        in_scope = [item for item in held.values() if item["organizationId"] == "acme"]
        wanted = [item for item in in_scope if item["decision"] == "reject"]
        with reading(world.engine) as connection:
            for kind in ("review", "content"):
                found, total = search.nearest(connection, asked, query, kind, 5)
                with_text = [item for item in wanted if kind == "review" or item["content"]]
                texts = [f"reject. {item['reasoning']}" if kind == "review" else item["content"] for item in with_text]
                scores = sorted((embedder.embed(texts) @ vector).tolist(), reverse=True)[:5] if texts else []
                assert total == len(in_scope)
                assert np.allclose([judgment.similarity for judgment in found], scores, atol=2e-3)
                assert {judgment.row.record_id for judgment in found} <= {item["recordId"] for item in with_text}
            newest, _ = search.newest(connection, asked, 5)
        assert [item.row.created_at for item in newest] == sorted((item["createdAt"] for item in wanted), reverse=True)[
            :5
        ]


class OtherEmbedder:
    name = "other"

    def __init__(self) -> None:
        self.embed = open_embedder("hashing").embed


def test_vectors_of_two_embedders_are_not_compared(
    world: BackendWorld, tenant: Caller, add: Callable[..., None]
) -> None:
    add(*(judgment(f"r{number}", content="c" if number % 2 else None) for number in range(7)))
    search_of_other = JudgmentSearcher(OtherEmbedder(), JudgmentIndexes(2**30))
    world.app = world.another_node()
    asked = JudgmentQuery(tenant.ids["api_key"], {})

    assert len(search(tenant)["results"]) == 7
    assert reembed_judgments(world.engine, OtherEmbedder()) == 7
    assert reembed_judgments(world.engine, OtherEmbedder()) == 0

    status = tenant.refused("search_judgments", query="a")
    assert status == (503, "UNAVAILABLE", "7 judgments are not embedded with hashing-1 yet; run usher backend reembed")
    assert search(tenant, recencyDays=1)["totalInScope"] == 7
    with reading(world.engine) as connection:
        assert len(search_of_other.nearest(connection, asked, "r1", "review", 50)[0]) == 7
        assert len(search_of_other.nearest(connection, asked, "c", "content", 50)[0]) == 3


def test_the_least_recently_searched_index_is_evicted(world: BackendWorld) -> None:
    for key in ("one", "two", "three"):
        write(world.settings.database_url, key, *(judgment(f"r{number}") for number in range(50)))
    indexes = JudgmentIndexes(2 * 50 * 384 * 4 + 20_000)
    for key in ("one", "two", "three", "one"):
        with reading(world.engine) as connection:
            assert len(indexes.snapshot(connection, key, "review").seqs) == 50
    assert 50 * 384 * 4 < sum(index.size for index in indexes._indexes.values()) <= 2 * 50 * 384 * 4 + 20_000


def test_searches_see_complete_batches_of_concurrent_writers(
    world: BackendWorld, tenant: Caller, add: Callable[..., None]
) -> None:
    """A batch becomes visible at once and stays visible."""
    add(judgment("first"))
    size, batches = 20, 12
    seen: list[list[int]] = []

    def look() -> None:
        mine: list[Any] = []
        while not mine or mine[-1] < batches * size + 1:
            mine.append(search(tenant, query="reason")["totalInScope"])
        seen.append(mine)

    threads = [Thread(target=look, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for batch in range(batches):
        # Each batch also replaces the first judgment.
        add(judgment("first", decision=f"v{batch}"), *(judgment(f"r{batch}-{number}") for number in range(size)))
    for thread in threads:
        thread.join(60)

    assert len(seen) == len(threads)
    for totals in seen:
        assert totals == sorted(totals)
        assert {total % size for total in totals} == {1}
    assert ids(search(tenant, filters={"decision": f"v{batches - 1}"})) == ["first"]


def test_deletes_lock_before_they_read(world: BackendWorld, tenant: Caller, add: Callable[..., None]) -> None:
    """In the order of ``reembed_judgments``. Otherwise both deadlock on PostgreSQL."""
    add(judgment("r1", documentId="d1"), judgment("r2", documentId="d2"))
    api_key = tenant.ids["api_key"]
    deletes: list[Callable[[Connection], None]] = [
        lambda connection: delete_judgments_of_documents(connection, Scope(api_key, "acme"), ["d1"]),
        lambda connection: delete_judgments_of_organizations(connection, api_key, ["acme"]),
    ]
    for delete in deletes:
        statements: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, *_: Any, seen: list[str] = statements) -> None:
            seen.append(statement)

        with writing(world.engine) as connection:
            event.listen(connection, "before_cursor_execute", note)
            delete(connection)
        assert statements[0].startswith("INSERT INTO judgment_state ")
        assert any(statement.startswith("DELETE FROM judgment_vector ") for statement in statements)


def test_data_of_a_document_is_deleted_with_it(tenant: Caller, add: Callable[..., None]) -> None:
    places = [("acme", "d1"), ("acme", "d2"), ("acme", "d3"), ("beta", "d1"), ("gamma", "d1")]
    tenant("add_folder", organizationId="acme", folders=[{"folderId": "f"}], createOrganization=True)
    tenant("add_documents", organizationId="acme", folderId="f", documents=[{"documentId": "d2"}])
    for organization, document in places:
        ids_of = {"organizationId": organization, "documentId": document}
        tenant("add_crdt_data", **ids_of, editorId="e", data="x", type="text")
        add(judgment(f"{organization}/{document}", **ids_of))

    def left() -> set[str]:
        found = {
            f"{organization}/{document}"
            for organization, document in places
            if tenant("get_crdt_data", organizationId=organization, documentId=document)
        }
        assert set(ids(search(tenant))) == found
        return found

    assert len(left()) == 5
    tenant("delete_documents", organizationId="acme", documentIds=["d1"])
    assert left() == {"acme/d2", "acme/d3", "beta/d1", "gamma/d1"}
    tenant("delete_folder", organizationId="acme", folderId="f")
    assert left() == {"acme/d3", "beta/d1", "gamma/d1"}
    tenant("delete_organizations", organizationIds=["beta"])
    assert left() == {"acme/d3", "gamma/d1"}
    tenant("add_crdt_data", organizationId="beta", documentId="d1", editorId="e", data="y", type="text")
