"""Deletes of folders and groups in which other systems have put items are held."""

from typing import Any

import pytest

from app.sync.plan.settings import LimitSettings
from tests.worlds.syncing import failure

DECIDE = ": approve the deletes, or keep the items in the backend"


def put_foreign_items(company: Any) -> None:
    company.ask("add_folder", organizationId="acme", folders=[{"folderId": "theirs", "parentFolderId": "drafts"}])
    theirs = [{"documentId": "their plan", "documentName": "P"}, {"documentId": "their map", "documentName": "M"}]
    company.ask("add_documents", organizationId="acme", folderId="theirs", documents=theirs)
    company.ask("add_users", organizationId="acme", users=[{"userId": "zoe", "name": "Zoe", "email": "z@acme.example"}])
    company.ask("add_users_to_groups", organizationId="acme", organizationUserGroupId="core", userIds=["zoe"])


def remove_containers(company: Any) -> None:
    for folder in ("specs", "drafts"):
        company.directory.remove("folder", "acme", folder)
    for document in ("roadmap", "salaries"):
        company.directory.remove("document", "acme", document)
    company.directory.remove("group", "acme", "core")


def test_they_are_held_until_approved(company: Any) -> None:
    put_foreign_items(company)
    before = company.held()
    remove_containers(company)
    preview = company.sync(dry_run=True)
    run = company.sync()
    assert (preview.report["held"], run.status) == (run.report["held"], "held")
    group, folder = run.report["held"]
    assert folder["reason"] == (
        "folder specs contains 1 folder (theirs) and 2 documents (their map and others) that this plan does not delete"
        + DECIDE
    )
    assert group["reason"] == f"group core contains 1 group member (zoe) that this plan does not delete{DECIDE}"
    assert (folder["limit"], folder["deletes"], folder["below"], folder["ledger"]) == ("foreign", 2, 6, 3)
    assert (group["deletes"], group["below"]) == (1, 1)
    assert company.wire.counted() == {"delete_users_from_groups": 1}
    assert company.held()["documents"] == before["documents"]
    assert company.held()["groups"] == before["groups"] | {"eng": ["bob"]}
    company.runs.approve(run.run_id)
    assert company.execute(run.run_id).status == "done"
    assert set(company.held()["documents"]) == {"handbook", "pressrelease"}
    assert set(company.held()["folders"]) == {"archive"}
    assert company.held()["groups"] == {"eng": ["bob"]}


def test_an_approval_of_deletes_over_a_limit_does_not_include_them(company: Any) -> None:
    put_foreign_items(company)
    remove_containers(company)
    company.limits = LimitSettings(delete_count=0, delete_percent=100)
    run = company.sync()
    assert {hold["limit"] for hold in run.report["held"]} == {"delete_count"}
    company.runs.approve(run.run_id)
    run = company.execute(run.run_id)
    assert (run.status, {hold["limit"] for hold in run.report["held"]}) == ("held", {"foreign"})
    assert {"theirs", "specs"} <= set(company.held()["folders"])
    company.runs.approve(run.run_id)
    assert company.execute(run.run_id).status == "done"
    assert set(company.held()["folders"]) == {"archive"}
    assert company.held()["groups"] == {"eng": ["bob"]}


def test_a_stored_plan_is_checked_again(company: Any) -> None:
    remove_containers(company)
    preview = company.sync(dry_run=True)
    assert "held" not in preview.report
    put_foreign_items(company)
    run = company.sync(plan_id=preview.plan_id)
    assert (run.status, {hold["kind"] for hold in run.report["held"]}) == ("held", {"folder", "group"})
    assert "their map" in str(company.ask("get_documents", organizationId="acme"))


def test_documents_that_another_system_moved_into_the_folder_are_kept(company: Any) -> None:
    company.ask("move_documents", organizationId="acme", documentIds=["handbook"], folderId="drafts")
    remove_containers(company)
    run = company.sync()
    assert (run.status, run.report["held"][0]["limit"]) == ("held", "foreign")
    assert "handbook" in company.held()["documents"]


def test_contents_that_the_plan_moves_hold_nothing(company: Any) -> None:
    company.directory.folder("drafts", parent="archive")
    company.directory.document("salaries", folder="archive", access="restricted")
    company.directory.remove("folder", "acme", "specs")
    assert company.sync().status == "done"
    assert set(company.held()["folders"]) == {"drafts", "archive"}
    assert set(company.held()["documents"]) == {"handbook", "roadmap", "pressrelease", "salaries"}


def test_allowed_deletes_include_foreign_items(company: Any) -> None:
    put_foreign_items(company)
    remove_containers(company)
    assert company.sync(allow_deletes=True).status == "done"
    assert set(company.held()["folders"]) == {"archive"}


@pytest.mark.parametrize(("code", "status"), [(400, "INVALID_ARGUMENT"), (404, "NOT_FOUND")])
def test_contents_that_cannot_be_read(company: Any, code: int, status: str) -> None:
    def refuses(operation: str, data: Any, backend: Any) -> Any:
        return (
            failure(code, status, "no such thing") if operation == "get_documents" and "folderId" in data else backend()
        )

    remove_containers(company)
    company.wire.hook = refuses
    run = company.sync()
    if code == 404:
        assert run.status == "done"
    else:
        assert run.status == "held"
        assert "the contents of folder specs cannot be read" in run.report["held"][0]["reason"]


def test_items_whose_own_delete_was_discarded_are_kept(company: Any) -> None:
    put_foreign_items(company)
    remove_containers(company)
    company.runs.discard(company.sync().run_id)
    company.ask("move_documents", organizationId="acme", documentIds=["roadmap"], folderId="archive")
    company.directory.remove("folder", "acme", "archive")
    run = company.sync()
    assert (run.status, "archive contains 1 document (roadmap)" in run.report["held"][0]["reason"]) == ("held", True)
    assert "roadmap" in company.held()["documents"]


def test_folders_that_are_emptied_one_by_one_are_not_checked(company: Any) -> None:
    put_foreign_items(company)
    for document in ("roadmap", "salaries"):
        company.directory.remove("document", "acme", document)
    for folder in ("specs", "drafts"):
        company.directory.remove("folder", "acme", folder)
    company.operations = "core"
    run = company.sync()
    assert run.status == "done"
    assert not {"get_folders", "get_documents", "delete_folder"} & {call.operation for call in company.wire.sent}


def test_refused_credentials_end_the_run(company: Any) -> None:
    remove_containers(company)
    company.wire.hook = lambda operation, data, backend: failure(401, "UNAUTHENTICATED", "no such key")
    run = company.sync()
    assert (run.status, "no such key" in run.error) == ("failed", True)


def test_a_preview_does_not_need_the_backend(company: Any) -> None:
    put_foreign_items(company)
    remove_containers(company)
    company.wire.hook = lambda operation, data, backend: failure(500, "INTERNAL", "out of order")
    preview = company.sync(dry_run=True)
    assert (preview.status, preview.total("held")) == ("done", 0)
    assert "out of order" in preview.report["contentsNotRead"]
    company.wire.hook = None
    assert company.sync(plan_id=preview.plan_id).status == "held"
