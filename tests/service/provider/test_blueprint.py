"""The permission-provider call over HTTP, on a real database."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any

import orjson
import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import Engine, insert, text
from werkzeug.test import TestResponse

from app.access import tables
from app.access.decision.decide import Rule
from app.access.origins import load_origins
from app.access.sql_view import opened_sql_view
from app.contract.errors import Unauthenticated
from app.foundation.database.engine import open_engine, writing
from app.foundation.database.tables import METADATA
from app.http.body import ANONYMOUS_BYTES
from app.http.errors import install_error_handlers
from app.http.throttle import FailedCredentials
from app.service.provider.blueprint import provider_blueprint
from app.service.provider.parts import ProviderParts
from app.service.provider.settings import MAX_BODY_BYTES, ProviderSettings
from tests.tables import make_tables

NOW = datetime(2026, 11, 20, 10, tzinfo=UTC)
NOW_MS = 1795168800000
TOKEN = "first-token"
ASKED = {"userId": "ada", "resource": {"type": "document", "id": "roadmap", "organizationId": "acme"}}
URL = "/permissions/check"


class Service:
    """The blueprint, in a Flask app."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.calls: list[tuple[int, int, int]] = []

    def client(self, **given: Any) -> FlaskClient:
        settings = ProviderSettings.model_validate({"auth_tokens": [TOKEN, "second-token"], **given})
        app = Flask("test")
        install_error_handlers(app)
        app.register_blueprint(
            provider_blueprint(
                ProviderParts(
                    settings=settings,
                    open_view=partial(opened_sql_view, self.engine),
                    open_view_with_names=partial(opened_sql_view, self.engine),
                    load_origins=partial(load_origins, self.engine),
                    require_admin=self.require_admin,
                    clock=lambda: NOW,
                    instance=lambda: "stamp",
                    observers=(self,),
                    failures=FailedCredentials(),
                )
            )
        )
        return app.test_client()

    def require_admin(self) -> None:
        from flask import request

        if request.headers.get("Authorization") != "Bearer admin":
            raise Unauthenticated("admins only")

    def answered(self, allowed: int, denied: Mapping[Rule, int], errors: int, seconds: float) -> None:
        assert seconds >= 0
        assert all(rule.denies for rule in denied)
        self.calls.append((allowed, sum(denied.values()), errors))


@pytest.fixture
def empty(database_url: str) -> Iterator[Service]:
    engine = open_engine(database_url)
    make_tables(engine, METADATA)
    yield Service(engine)
    engine.dispose()


@pytest.fixture
def service(empty: Service) -> Service:
    rows: list[tuple[Any, dict[str, object]]] = [
        (
            tables.ACCESS_TABLES["organization"],
            {"organization_id": "acme", "access_type": "organizationPrivate", "disabled": False, "payload": "{}"},
        ),
        (
            tables.ACCESS_TABLES["user"],
            {"user_id": "ada", "disabled": False, "payload": '{"name":"Ada","email":"a@acme.example"}'},
        ),
        (
            tables.ACCESS_TABLES["membership"],
            {"organization_id": "acme", "user_id": "ada", "access_role": "editor", "expires_at": NOW_MS + 5},
        ),
        (
            tables.ACCESS_TABLES["document"],
            {"organization_id": "acme", "document_id": "roadmap", "folder_id": "", "access_type": "", "payload": "{}"},
        ),
        (
            tables.ACCESS_TABLES["contextGrant"],
            {
                "organization_id": "acme",
                "user_id": "ada",
                "organization_user_group_id": "",
                "field": "widget",
                "value": "2",
                "document_id": "",
            },
        ),
        (tables.RevisionRow, {"revision": 1, "created_at": 0, "changes": "{}"}),
    ]
    with writing(empty.engine) as connection:
        for table, row in rows:
            connection.execute(insert(table), [{"digest": "", **row} if "payload" in row else row])
    return empty


def ask(client: FlaskClient, *requests: object, token: str | None = TOKEN, path: str = URL) -> TestResponse:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return client.post(path, json={"data": {"requests": list(requests)}}, headers=headers)


def error_of(response: TestResponse, code: int, status: str) -> str:
    assert response.status_code == code
    assert response.json is not None
    assert set(response.json) == {"error"}
    assert response.json["error"]["status"] == status
    return str(response.json["error"]["message"])


def test_check_answers_as_in_the_contract(service: Service) -> None:
    response = ask(service.client(), ASKED)
    assert response.status_code == 200
    assert response.content_type == "application/json"
    assert response.json == {
        "data": [
            {
                "userId": "ada",
                "resourceId": "roadmap",
                "type": "document",
                "organizationId": "acme",
                "hasAccess": True,
                "accessRole": "editor",
                "expiresAt": NOW_MS + 5,
            }
        ],
        "success": True,
        "statusCode": 200,
        "message": "Permissions decided.",
    }
    assert service.calls == [(1, 0, 0)]


def test_check_answers_each_question_in_its_place(service: Service) -> None:
    client = service.client()
    organization = {"userId": "ada", "resource": {"type": "organization", "id": "acme"}}
    unknown = {"userId": "ada", "resource": {"type": "folder", "id": "nowhere", "organizationId": "acme", "more": [1]}}
    context = {"type": "context", "id": "roadmap", "organizationId": "acme", "context": {"access": {"widget": 2}}}
    wrong = {"userId": 7, "resource": {"type": "document", "id": "roadmap", "organizationId": "acme"}}
    response = ask(client, wrong, organization, None, unknown, {"userId": "ada", "resource": context})
    assert response.status_code == 200
    assert response.json is not None
    results = response.json["data"]
    assert [result["hasAccess"] for result in results] == [False, True, False, False, True]
    assert "userId" in results[0]["error"]
    assert results[0]["resourceId"] == "roadmap"
    assert results[1]["organizationId"] == "acme"
    assert "error" in results[2]
    assert set(results[3]) == {"userId", "resourceId", "type", "organizationId", "hasAccess"}
    assert service.calls == [(2, 1, 2)]


def test_check_echoes_ids_as_they_came(service: Service) -> None:
    odd = {"userId": "ö\"'/ 🦉", "resource": {"type": "document", "id": "a/b c", "organizationId": "%\\"}}
    response = ask(service.client(), odd)
    assert response.json is not None
    result = response.json["data"][0]
    assert (result["userId"], result["resourceId"], result["organizationId"]) == ("ö\"'/ 🦉", "a/b c", "%\\")
    assert result["hasAccess"] is False


def test_check_answers_no_question_with_no_result(service: Service) -> None:
    response = ask(service.client())
    assert response.json is not None
    assert response.json["data"] == []


@pytest.mark.parametrize("token", ["second-token", TOKEN])
def test_check_accepts_every_configured_token(service: Service, token: str) -> None:
    assert ask(service.client(), ASKED, token=token).status_code == 200


@pytest.mark.parametrize("token", [None, "", "first-toke", "first-token2", "ö"])
def test_check_refuses_other_tokens(service: Service, token: str | None) -> None:
    response = ask(service.client(), ASKED, token=token)
    message = error_of(response, 401, "UNAUTHENTICATED")
    assert "first" not in message
    assert service.calls == []


def test_check_requires_no_token_if_anonymous_calls_are_allowed(service: Service) -> None:
    assert ask(service.client(allow_anonymous=True), ASKED, token=None).status_code == 200


def test_requests_without_a_token_have_a_small_limit(service: Service) -> None:
    body = b'{"data": {"requests": ["' + b"x" * (ANONYMOUS_BYTES - 10) + b'"]}}'
    response = service.client(allow_anonymous=True).post(URL, data=body, content_type="application/json")
    error_of(response, 413, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{", "application/json", 400),
        (b'{"data": {}}', "application/json", 400),
        (b'{"data": {"requests": {}}}', "application/json", 400),
        (b'{"data": {"requests": [], "requests": []}}', "application/json", 400),
        (b'{"data": {"requests": ["\xff"]}}', "application/json", 400),
        (b'{"data": {"requests": ["\\u0000", {"userId": "ada", "userId": "bob"}]}}', "application/json", 400),
        (b'{"data": {"requests": [NaN]}}', "application/json", 400),
        (b'{"data": {"requests": ' + b"[" * 100 + b"]" * 100 + b"}}", "application/json", 400),
        (b'{"data": {"requests": []}}', "text/plain", 415),
        (b'{"data": {"requests": ["' + b"x" * MAX_BODY_BYTES + b'"]}}', "application/json", 413),
    ],
)
def test_check_refuses_invalid_bodies(service: Service, body: bytes, content_type: str, code: int) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": content_type}
    error_of(service.client().post(URL, data=body, headers=headers), code, "INVALID_ARGUMENT")
    assert service.calls == []


RESOURCE = '"resource": {"type": "document", "id": "roadmap", "organizationId": "acme"}'
ID_ERROR = "must be valid text without NUL of at most 512 bytes"
VALUE_ERROR = "resource.context.access: each value must be a string, or a number within 64 bits"


def of_context(access: str) -> str:
    resource = f'{{"type": "context", "id": "roadmap", "organizationId": "acme", "context": {{"access": {access}}}}}'
    return f'{{"userId": "ada", "resource": {resource}}}'


@pytest.mark.parametrize(
    ("question", "error"),
    [
        (rf'{{"userId": "a\u0000", {RESOURCE}}}', f"userId: {ID_ERROR}"),
        (rf'{{"userId": "\ud800", {RESOURCE}}}', f"userId: {ID_ERROR}"),
        (f'{{"userId": 9223372036854775808, {RESOURCE}}}', "userId: must be a string"),
        (rf'{{"user\u0000Id": "ada", {RESOURCE}}}', "userId: field required"),
        ('{"userId": "ada", "resource": {"type": "document", "id": 1e999}}', "resource.id: must be a string"),
        (r'"\u0000"', "the request must be an object"),
        ("7" * 5000, "the request must be an object"),
        (of_context('{"widget": 9223372036854775808}'), VALUE_ERROR),
        (of_context('{"widget": -1e999}'), VALUE_ERROR),
        (
            of_context(r'{"widget\u0000": 2}'),
            "resource.context.access: holds text that is empty, too long or not valid",
        ),
    ],
)
def test_check_answers_the_other_questions_beside_an_unstorable_one(
    service: Service, question: str, error: str
) -> None:
    asked = orjson.dumps(ASKED).decode()
    for path, token in ((URL, TOKEN), ("/permissions/explain", "admin")):
        response = service.client().post(
            path,
            data=f'{{"data": {{"requests": [{asked}, {question}, {asked}]}}}}',
            content_type="application/json",
            headers={"Authorization": f"Bearer {token}"},
        )
        assert response.status_code == 200, response.json
        results = orjson.loads(response.get_data())["data"]
        assert [result["hasAccess"] for result in results] == [True, False, True]
        assert results[1]["error"] == error
    assert service.calls == [(2, 0, 1)]


def test_check_ignores_odd_values_in_fields_that_it_does_not_know(service: Service) -> None:
    question = f'{{"userId": "ada", {RESOURCE}, "trace": 99999999999999999999, "note": "\\u0000"}}'
    response = service.client().post(
        URL,
        data=f'{{"data": {{"requests": [{question}]}}}}',
        content_type="application/json",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    assert response.status_code == 200
    assert [result["hasAccess"] for result in orjson.loads(response.get_data())["data"]] == [True]


def test_check_refuses_too_many_questions(service: Service) -> None:
    client = service.client(max_requests=2)
    assert ask(client, ASKED, ASKED).status_code == 200
    assert "at most 2" in error_of(ask(client, ASKED, ASKED, ASKED), 400, "INVALID_ARGUMENT")


def test_check_is_unavailable_until_the_directory_was_read(empty: Service) -> None:
    error_of(ask(empty.client(), ASKED), 503, "UNAVAILABLE")


def test_check_is_unavailable_while_the_database_is_broken_and_recovers(service: Service) -> None:
    client = service.client()
    with writing(service.engine) as connection:
        connection.execute(text("ALTER TABLE model_grant RENAME TO elsewhere"))
    broken = ask(client, ASKED)
    assert broken.status_code >= 500
    assert "elsewhere" not in broken.text
    with writing(service.engine) as connection:
        connection.execute(text("ALTER TABLE elsewhere RENAME TO model_grant"))
    assert ask(client, ASKED).status_code == 200


@pytest.mark.postgres
def test_check_is_unavailable_when_connections_break(service: Service) -> None:
    if service.engine.dialect.name != "postgresql":
        pytest.skip("SQLite has no server")
    client = service.client()
    assert ask(client, ASKED).status_code == 200
    with ExitStack() as stack:
        other = stack.enter_context(open_engine(str(service.engine.url)).connect())
        other.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    assert ask(client, ASKED).status_code in {200, 503}
    assert ask(client, ASKED).status_code == 200


def test_check_is_unavailable_when_the_database_is_gone(tmp_path: Any) -> None:
    service = Service(open_engine(f"sqlite:///{tmp_path}/gone/x.db"))
    (tmp_path / "gone").rmdir()
    error_of(ask(service.client(), ASKED), 503, "UNAVAILABLE")


def test_preflight_is_answered_for_configured_origins_alone(service: Service) -> None:
    headers = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "POST"}
    assert service.client().options(URL, headers=headers).status_code == 405
    client = service.client(browser_origins=["http://localhost:3000"])
    answer = client.options(URL, headers=headers)
    assert answer.status_code == 204
    assert answer.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    assert "Authorization" in answer.headers["Access-Control-Allow-Headers"]
    other = client.options(URL, headers={**headers, "Origin": "http://evil.example"})
    assert "Access-Control-Allow-Origin" not in other.headers


def test_configured_origins_may_read_answers_and_errors(service: Service) -> None:
    client = service.client(browser_origins=["http://localhost:3000"])
    for token in (TOKEN, "wrong"):
        headers = {"Authorization": f"Bearer {token}", "Origin": "http://localhost:3000"}
        answer = client.post(URL, json={"data": {"requests": []}}, headers=headers)
        assert answer.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"
    assert "Access-Control-Allow-Origin" not in ask(client, ASKED).headers
    plain = service.client().post(URL, json={}, headers={"Origin": "http://localhost:3000"})
    assert "Access-Control-Allow-Origin" not in plain.headers


def test_explain_returns_reason_and_path(service: Service) -> None:
    response = ask(service.client(), ASKED, {"userId": ""}, token="admin", path="/permissions/explain")
    assert response.status_code == 200
    assert response.json is not None
    result, malformed = response.json["data"]
    assert (result["hasAccess"], result["accessRole"], result["expiresAt"]) == (True, "editor", NOW_MS + 5)
    assert result["reason"].startswith("Allowed as editor: document roadmap is organizationPrivate")
    assert [record["kind"] for record in result["path"]] == ["document", "organization", "membership"]
    assert malformed["hasAccess"] is False
    assert "reason" not in malformed


def test_explain_decides_as_of_a_moment(service: Service) -> None:
    client = service.client()

    def explained(at: object) -> TestResponse:
        body = {"data": {"requests": [ASKED], "at": at}}
        return client.post("/permissions/explain", json=body, headers={"Authorization": "Bearer admin"})

    def reason(at: object) -> str:
        answer = explained(at).json
        assert answer is not None
        return str(answer["data"][0]["reason"])

    assert reason(None).startswith("Allowed as editor")
    assert reason(NOW_MS + 4).startswith("Allowed as editor")
    assert reason(NOW_MS + 5).startswith("Denied: no grant lets ada in")
    assert reason("2026-11-20T11:00:00+01:00").startswith("Allowed as editor")
    assert reason("2026-11-20T12:00:00+01:00").startswith("Denied")
    unusable: list[object] = ["tomorrow", "2026-11-20T12:00:00", -1, 1.5, True, [], 10**18, "9999-12-31T23:00:00Z"]
    for wrong in unusable:
        error_of(explained(wrong), 400, "INVALID_ARGUMENT")


def test_explain_refuses_unknown_fields(service: Service) -> None:
    def message(body: object) -> str:
        headers = {"Authorization": "Bearer admin"}
        return error_of(
            service.client().post("/permissions/explain", json=body, headers=headers), 400, "INVALID_ARGUMENT"
        )

    assert message({"data": {"requests": []}, "at": 5}) == "at: not a field of this request; allowed: data"
    misspelt = {"data": {"requests": [], "At": 5}}
    assert message(misspelt) == "data.At: not a field of this request; allowed: requests, at"


def test_explain_may_require_a_revision(service: Service) -> None:
    def explained(revision: str) -> TestResponse:
        headers = {"Authorization": "Bearer admin", "x-usher-min-revision": revision}
        return service.client().post("/permissions/explain", json={"data": {"requests": [ASKED]}}, headers=headers)

    assert explained("1").status_code == 200
    error_of(explained("2"), 503, "UNAVAILABLE")
    error_of(explained("next"), 400, "INVALID_ARGUMENT")


def test_check_ignores_a_moment(service: Service) -> None:
    body = {"data": {"requests": [ASKED], "at": NOW_MS + 5}}
    answer = service.client().post(URL, json=body, headers={"Authorization": f"Bearer {TOKEN}"}).json
    assert answer is not None
    assert answer["data"][0]["hasAccess"] is True


def test_explain_is_for_admins(service: Service) -> None:
    error_of(ask(service.client(), ASKED, path="/permissions/explain"), 401, "UNAUTHENTICATED")


def test_the_configured_path_is_the_only_one(service: Service) -> None:
    client = service.client(path="/ask/me")
    assert ask(client, ASKED, path="/ask/me").status_code == 200
    assert ask(client, ASKED).status_code == 404


def test_check_follows_a_new_revision_at_once(service: Service) -> None:
    client = service.client()

    def has_access() -> bool:
        response = ask(client, ASKED)
        assert response.json is not None
        return bool(response.json["data"][0]["hasAccess"])

    assert [has_access(), has_access()] == [True, True]
    with writing(service.engine) as connection:
        connection.execute(text("DELETE FROM model_membership"))
        connection.execute(insert(tables.RevisionRow), [{"revision": 2, "created_at": 1, "changes": "{}"}])
    assert has_access() is False
