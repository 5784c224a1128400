import pytest

from .conftest import Caller


def add(tenant: Caller, *ids: str, **data: object) -> dict[str, dict[str, object]]:
    documents = [{"documentId": document_id} for document_id in ids]
    results: dict[str, dict[str, object]] = tenant(
        "add_documents", organizationId="acme", documents=documents, createOrganization=True, **data
    )
    return results


def ids(tenant: Caller, **data: object) -> list[str]:
    return [document["id"] for document in tenant("get_documents", organizationId="acme", **data)]


def test_documents_are_added_and_read(tenant: Caller) -> None:
    results = tenant(
        "add_documents",
        organizationId="acme",
        createOrganization=True,
        documents=[{"documentId": "d", "documentName": "D", "pages": 3, "tags": ["x"]}, {"documentId": "bare"}],
    )

    assert results["d"] == {"success": True, "id": "d", "message": "Document added."}
    bare, named = tenant("get_documents", organizationId="acme")
    assert named == {
        "id": "d",
        "documentName": "D",
        "accessType": "organizationPrivate",
        "inheritAccessFromParent": True,
        "disabled": False,
        "folderId": "root",
        "pages": 3,
        "tags": ["x"],
    }
    assert (bare["id"], bare["documentName"]) == ("bare", "bare")
    assert ids(tenant, documentIds=["d", "who"]) == ["d"]
    assert tenant("get_documents", organizationId="nobody") == []


def test_a_document_is_added_once(tenant: Caller) -> None:
    add(tenant, "d")

    results = add(tenant, "d", "e", "e")

    assert results["d"] == {"success": False, "id": "d", "message": "Document already exists."}
    assert results["e"]["success"] is True


def test_containers_are_created_only_on_request(tenant: Caller) -> None:
    documents = [{"documentId": "d"}]

    results = tenant("add_documents", organizationId="acme", documents=documents)
    assert results["d"] == {"success": False, "id": "d", "message": "Organization does not exist."}

    results = add(tenant, "d", folderId="f")
    assert results["d"] == {"success": False, "id": "d", "message": "Folder does not exist."}
    # Nothing is made in vain.
    assert tenant("get_organizations_v1") == []

    assert add(tenant, "d", folderId="f", createFolder=True)["d"]["success"] is True
    assert ids(tenant, folderId="f") == ["d"]


def test_access_type_in_the_request_is_applied(tenant: Caller) -> None:
    documents = [{"documentId": "d", "accessType": "restricted"}, {"documentId": "e", "accessType": "nonsense"}]
    tenant("add_documents", organizationId="acme", documents=documents, createOrganization=True)

    types = {wire["id"]: wire["accessType"] for wire in tenant("get_documents", organizationId="acme")}

    assert types == {"d": "restricted", "e": "organizationPrivate"}


def test_documents_are_updated_field_by_field(tenant: Caller) -> None:
    tenant(
        "add_documents",
        organizationId="acme",
        createOrganization=True,
        documents=[{"documentId": "d", "documentName": "D", "x": 1, "y": 2}],
    )

    results = tenant(
        "update_documents", organizationId="acme", documents=[{"documentId": "d", "y": 3}, {"documentId": "e"}]
    )

    assert results["d"] == {"success": True, "id": "d", "message": "Document updated."}
    assert results["e"] == {"success": False, "id": "e", "message": "Document does not exist."}
    (document,) = tenant("get_documents", organizationId="acme")
    assert (document["documentName"], document["x"], document["y"]) == ("D", 1, 3)


def test_move_is_all_or_nothing(tenant: Caller) -> None:
    add(tenant, "d", "e")
    tenant("add_folder", organizationId="acme", folders=[{"folderId": "f", "accessType": "restricted"}])

    code, status, message = tenant.refused(
        "move_documents", organizationId="acme", documentIds=["d", "who"], folderId="f"
    )
    assert (code, status) == (404, "NOT_FOUND")
    assert message.startswith("data.documentIds[1]: ")
    assert tenant.refused("move_documents", organizationId="acme", documentIds=["d"], folderId="no")[0] == 404
    assert ids(tenant, folderId="root") == ["d", "e"]

    tenant("move_documents", organizationId="acme", documentIds=["d"], folderId="f")
    assert ids(tenant, folderId="f") == ["d"]
    assert ids(tenant, folderId="root") == ["e"]
    assert tenant("get_documents", organizationId="acme", folderId="f")[0]["accessType"] == "restricted"

    tenant("move_documents", organizationId="acme", documentIds=["d"], folderId="root")
    assert ids(tenant, folderId="root") == ["d", "e"]


def test_limit_of_ids_in_moves_and_reads(tenant: Caller) -> None:
    many = [f"d{number}" for number in range(31)]

    assert tenant.refused("move_documents", organizationId="a", documentIds=many, folderId="root")[0] == 400
    assert tenant.refused("get_documents", organizationId="a", documentIds=many)[0] == 400


def test_update_document_access(tenant: Caller) -> None:
    add(tenant, "d")

    results = tenant("update_document_access", organizationId="acme", documentIds=["d", "e"], accessType="public")

    assert results["d"] == {"success": True, "accessType": "public", "message": "Document access updated."}
    assert results["e"] == {"success": False, "message": "Document does not exist."}
    (document,) = tenant("get_documents", organizationId="acme")
    assert (document["accessType"], document["inheritAccessFromParent"]) == ("public", False)


def test_deleting_a_missing_document_succeeds(tenant: Caller) -> None:
    tenant("add_users", organizationId="acme", documentId="d", users=[{"userId": "ada"}])

    results = tenant("delete_documents", organizationId="acme", documentIds=["d", "e"])

    assert results == {
        "d": {"success": True, "id": "d", "message": "Deleted Successfully"},
        "e": {"success": True, "id": "e", "message": "Document does not exist"},
    }
    assert ids(tenant) == []
    assert tenant("get_users", organizationId="acme", allDocuments=True) == []


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_documents_are_read_by_page(tenant: Caller, size: int) -> None:
    add(tenant, "a", "b", "ä", "ž", "Z")
    seen: list[str] = []
    token = None
    while True:
        paging = {"pageSize": size} | ({"pageToken": token} if token else {})
        response = tenant.call("get_documents", organizationId="acme", **paging)
        assert response.json is not None
        page = [document["id"] for document in response.json["result"]["data"]]
        assert len(page) <= size
        seen += page
        token = response.json["result"].get("pageToken")
        if not token:
            break

    assert sorted(seen) == sorted(["a", "b", "ä", "ž", "Z"])
