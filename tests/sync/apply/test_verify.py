"""A verify corrects drift, adopts desired items and ignores foreign ones."""

from collections.abc import Callable
from threading import Event
from typing import Any

import orjson
import pytest
import requests
from pydantic import SecretStr
from sqlalchemy import update
from urllib3.exceptions import NewConnectionError
from werkzeug.wrappers import Response

from app.client.client import BackendClient
from app.client.settings import BackendSettings
from app.foundation.database.engine import writing
from app.sync.apply.capabilities import Capabilities
from app.sync.apply.gate import Gate
from app.sync.apply.verify import Verify, VerifyStoppedError
from app.sync.ledger.tables import LedgerItemRow, LedgerRow, ObservedItemRow
from app.sync.plan.selection import EVERYTHING
from tests.progress import QuietProgress

pytestmark = pytest.mark.slow


def test_first_run_begins_with_verify_and_later_ones_do_not(world: Any, fill: Any) -> None:
    fill(world.directory)
    run = world.sync()
    assert run.report["verify"]["seen"] == 0
    assert world.rows(LedgerRow)[0].verified_at is not None
    assert "verify" not in world.sync().report


def test_first_run_adopts_desired_items(company: Any) -> None:
    before = company.held()
    company.ask("add_documents", organizationId="acme", documents=[{"documentId": "theirs", "documentName": "T"}])
    company.ask("add_users", organizationId="acme", users=[{"userId": "zoe", "name": "Zoe", "email": "z@acme.example"}])
    company.ask("add_organizations", organizations=[{"organizationId": "elsewhere", "organizationName": "E"}])
    with writing(company.engine) as connection:
        connection.execute(LedgerItemRow.__table__.delete())
        connection.execute(update(LedgerRow.__table__).values(verified_at=None))
    run = company.sync()
    assert run.status == "done"
    # A group's members can be read, the groups themselves cannot.
    assert company.wire.counted() == {"add_groups": 1}
    assert run.report["verify"]["foreign"] == {"document": 1, "organization": 1, "organizationUser": 1}
    assert "document acme / theirs" in run.report["verify"]["foreignNamed"]
    assert run.report["verify"]["notRead"] == ["group"]
    held = company.held()
    assert held["documents"].pop("theirs")
    assert held["members"].pop("zoe")
    assert held["organizations"].pop("elsewhere")
    assert held == before
    assert company.sync().calls == 0


def test_adopted_item_that_differs_is_updated(world: Any, fill: Any) -> None:
    world.ask("add_organizations", organizations=[{"organizationId": "acme", "organizationName": "Old name"}])
    world.ask("add_folder", organizationId="acme", folders=[{"folderId": "specs", "folderName": "Old specs"}])
    world.ask(
        "add_documents",
        organizationId="acme",
        folderId="specs",
        documents=[{"documentId": "roadmap", "documentName": "Old"}],
    )
    world.ask("add_users", organizationId="acme", users=[{"userId": "ada", "name": "Old", "email": "ada@acme.example"}])
    fill(world.directory)
    run = world.sync()
    assert (run.status, run.report["verify"]["adopted"]) == ("done", 4)
    held = world.held()
    assert held["organizations"] == {"acme": "acme"}
    assert held["folders"]["specs"] == ("Specs", "root", "restricted")
    assert held["documents"]["roadmap"] == ("Roadmap", "drafts", None)
    assert held["members"]["ada"] == ("Ada", "editor")
    counted = world.wire.counted()
    assert counted["add_organizations"] == 0
    world.wire.forget()
    assert world.sync().calls == 0


def drift(company: Any) -> None:
    """Someone at the backend changes one of everything."""
    company.ask("delete_users", organizationId="acme", userIds=["ada"])
    company.ask("delete_users", organizationId="acme", documentId="roadmap", userIds=["cleo"])
    company.ask("delete_documents", organizationId="acme", documentIds=["handbook"])
    company.ask("delete_folder", organizationId="acme", folderId="archive")
    company.ask("delete_users_from_groups", organizationId="acme", organizationUserGroupId="eng", userIds=["bob"])
    company.ask("update_folder", organizationId="acme", folders=[{"folderId": "drafts", "parentFolderId": "root"}])
    company.ask("update_folder_access", organizationId="acme", folderIds=["specs"], accessType="public")
    company.ask("update_document_access", organizationId="acme", documentIds=["salaries"], accessType="public")
    company.ask("move_documents", organizationId="acme", documentIds=["roadmap"], folderId="root")
    company.ask(
        "update_documents", organizationId="acme", documents=[{"documentId": "pressrelease", "documentName": "Hacked"}]
    )
    company.ask("update_organizations", organizations=[{"organizationId": "acme", "organizationName": "Hacked"}])
    company.ask(
        "update_users",
        organizationId="acme",
        users=[{"userId": "bob", "name": "Hacked", "email": "bob@acme.example", "accessRole": "editor"}],
    )


def test_verify_finds_drift_and_the_run_fixes_it(company: Any) -> None:
    before = company.held()
    drift(company)
    assert company.held() != before
    assert company.sync().calls == 0, "without a look at the backend nothing is known of it"
    run = company.sync(verify=True)
    assert run.status == "done", company.items(run)
    assert (run.report["verify"]["missing"], run.report["verify"]["foreign"]) == (5, {})
    held = company.held()
    roadmap = held["documents"].pop("roadmap")
    assert roadmap[:2] == before["documents"].pop("roadmap")[:2]
    assert held == before
    run = company.sync(verify=True)
    assert (run.calls, run.report["verify"]["missing"], run.report["verify"]["changed"]) == (0, 0, 0)


def test_dry_verify_reports_drift_and_sends_nothing(company: Any) -> None:
    drift(company)
    run = company.sync(verify=True, dry_run=True)
    assert run.status == "done"
    assert company.wire.writes == []
    assert run.report["verify"]["missing"] == 5
    assert run.counts["document"]["add"]["planned"] == 1


def test_lost_organization_is_brought_back_whole(company: Any) -> None:
    before = company.held()
    company.ask("delete_organizations", organizationIds=["acme"])
    run = company.sync(verify=True)
    assert run.status == "done"
    assert company.held() == before


def test_items_gone_from_directory_and_backend_are_forgotten_without_a_call(company: Any) -> None:
    company.ask("delete_documents", organizationId="acme", documentIds=["handbook"])
    company.directory.remove("document", "acme", "handbook")
    run = company.sync(verify=True)
    assert (run.status, run.calls) == ("done", 0)


def test_fields_that_the_backend_adds_are_no_drift(company: Any) -> None:
    company.ask("update_documents", organizationId="acme", documents=[{"documentId": "handbook", "colour": "red"}])
    company.ask("update_users", organizationId="acme", users=[{"userId": "ada", "lastSeen": 5}])
    run = company.sync(verify=True)
    assert (run.calls, run.report["verify"]["changed"]) == (0, 0)


def test_narrowed_verify_reads_the_narrowed_part_alone(company: Any) -> None:
    company.directory.organization("globex")
    assert company.sync().status == "done"
    drift(company)
    company.wire.forget()
    run = company.sync(verify=True, organization_ids=("globex",))
    assert (run.status, run.calls) == ("done", 0)
    assert {sent.data.get("organizationId", "globex") for sent in company.wire.sent} == {"globex"}
    company.wire.forget()
    run = company.sync(verify=True, user_ids=("bob",))
    assert run.status == "done"
    assert all(sent.data.get("userIds") == ["bob"] for sent in company.wire.sent if not sent.is_write)
    assert company.held()["members"].get("bob") == ("Bob", "viewer")
    assert "bob" in company.held()["groups"]["eng"]
    assert "ada" not in company.held()["members"]
    assert company.ledger()["organizationUser", "", "ada"], "what was not read is not judged"


def test_many_users_are_read_thirty_at_a_time(company: Any) -> None:
    names = tuple(f"u{number:03}" for number in range(65))
    for name in names:
        company.directory.user(name)
        company.directory.member(name)
    assert company.sync().status == "done"
    company.wire.forget()
    run = company.sync(verify=True, user_ids=names)
    assert run.status == "done"
    asked = [sent.data["userIds"] for sent in company.wire.sent]
    assert max(map(len, asked)) == 30
    assert {name for some in asked for name in some} == set(names)


def test_verify_reads_by_page(company: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("app.sync.apply.backend_reads._PAGE_SIZE", 2)
    before = company.ledger()
    run = company.sync(verify=True)
    assert (run.status, run.calls, run.report["verify"]["missing"]) == ("done", 0, 0)
    assert company.ledger() == before
    assert sum(sent.operation == "get_documents" for sent in company.wire.sent) == 2


@pytest.mark.parametrize("operation", ["get_organizations", "get_folders", "get_documents", "get_users"])
def test_failed_verify_changes_nothing(company: Any, operation: str) -> None:
    before = company.ledger()

    def gone(name: str, data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        if name == operation:
            raise requests.ConnectionError(NewConnectionError(None, "refused"))  # type: ignore[arg-type]
        return backend()

    company.wire.hook = gone
    run = company.sync(verify=True)
    assert run.status == "failed"
    assert company.ledger() == before
    assert company.rows(ObservedItemRow) == []


def test_verify_of_a_process_that_lost_the_lock_leaves_that_of_its_successor(company: Any) -> None:
    """The first process began to verify earlier, and its call returns while the second one verifies."""
    company.directory.remove("folder", "acme", "archive")
    first = Verify(
        engine=company.engine,
        client=BackendClient(BackendSettings(api_key=SecretStr("key"), auth_token=SecretStr("token"))),
        ledger_id=1,
        run_id="the first one",
        capabilities=Capabilities("auto"),
        gate=Gate(holds_lock=lambda: False, stop=Event()),
        threads=1,
        progress=QuietProgress(),
        clock=company.time,
    )

    def end_the_first(name: str, data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        if name == "get_documents" and first.gate.ending is None:
            with pytest.raises(VerifyStoppedError):
                first.run(EVERYTHING)
        return backend()

    company.wire.hook = end_the_first
    run = company.sync(verify=True)
    assert first.gate.ending is not None
    assert (run.status, run.report["verify"]["missing"]) == ("done", 0)
    assert "archive" not in company.held()["folders"]


def test_fields_that_the_backend_does_not_return_are_not_sent_repeatedly(company: Any) -> None:
    """Neither folder nor inheritance of documents, nor roles of users: the contract does not promise them."""

    def shows_less(name: str, data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        response = backend()
        body = response.get_json()
        hidden = {
            "get_documents": ("folderId", "inheritAccessFromParent", "ancestors"),
            "get_folders": ("inheritAccessFromParent",),
            "get_users": ("accessRole",),
        }.get(name, ())
        _hide(body["result"].get("data"), hidden)
        response.set_data(orjson.dumps(body))
        return response

    company.wire.hook = shows_less
    before = company.ledger()
    run = company.sync(verify=True)
    assert (run.status, run.calls, run.report["verify"]["changed"]) == ("done", 0, 0)
    assert company.ledger() == before


def test_verify_finds_moved_documents_if_the_backend_does_not_return_their_folder(company: Any) -> None:
    def shows_no_folder(name: str, data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        response = backend()
        if name == "get_documents":
            body = response.get_json()
            _hide(body["result"]["data"], ("folderId",))
            response.set_data(orjson.dumps(body))
        return response

    before = company.held()
    documents = before["documents"]
    in_folders = [name for name, document in documents.items() if document[1] not in (None, "", "root")]
    moved, elsewhere = in_folders[:2], next(name for name in documents if name not in in_folders)
    company.ask("move_documents", organizationId="acme", documentIds=moved, folderId="root")
    company.ask("move_documents", organizationId="acme", documentIds=[elsewhere], folderId="archive")
    company.wire.hook = shows_no_folder
    run = company.sync(verify=True)
    assert (run.status, run.report["verify"]["changed"]) == ("done", 3), company.items(run)
    assert company.held() == before
    run = company.sync(verify=True)
    assert (run.calls, run.report["verify"]["changed"]) == (0, 0)


def test_verify_keeps_the_folder_of_documents_that_the_backend_returns_in_several(company: Any) -> None:
    def ignores_the_folder(name: str, data: dict[str, Any], backend: Callable[[], Response]) -> Response:
        if name == "get_documents" and data.pop("folderId", None):
            return Response(company.wire.everything)
        response = backend()
        if name == "get_documents":
            body = response.get_json()
            _hide(body["result"]["data"], ("folderId",))
            response.set_data(orjson.dumps(body))
            company.wire.everything = response.get_data()
        return response

    company.wire.hook = ignores_the_folder
    before = company.ledger()
    run = company.sync(verify=True)
    assert (run.status, run.calls, run.report["verify"]["changed"]) == ("done", 0, 0)
    assert company.ledger() == before


def _hide(value: Any, names: tuple[str, ...]) -> None:
    if isinstance(value, list):
        for one in value:
            _hide(one, names)
    elif isinstance(value, dict):
        for name in names:
            value.pop(name, None)
        for one in value.values():
            _hide(one, names)
