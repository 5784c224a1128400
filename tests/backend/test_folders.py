from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.backend.resources.folder_tree import MAX_DEPTH
from tests.choice import examples

from .conftest import BackendWorld, Caller


def tree(tenant: Caller, **data: Any) -> dict[str, dict[str, Any]]:
    """Every folder in a response of Get Folders, by id, without its subfolders."""
    found: dict[str, dict[str, Any]] = {}
    pending = list(tenant("get_folders", organizationId="acme", **data))
    while pending:
        folder = pending.pop()
        pending.extend(folder.pop("subFolders", []))
        found[folder["folderId"]] = folder
    return found


def add(tenant: Caller, *folders: dict[str, Any], **data: Any) -> Any:
    return tenant("add_folder", organizationId="acme", folders=list(folders), createOrganization=True, **data)


def test_parents_and_children_in_any_order(tenant: Caller) -> None:
    results = add(
        tenant,
        {"folderId": "c", "folderName": "C", "parentFolderId": "b", "color": "red"},
        {"folderId": "b", "parentFolderId": "a"},
        {"folderId": "a", "parentFolderId": "root", "accessType": "restricted"},
    )

    assert results["c"] == {"success": True, "id": "c", "message": "Folder added."}
    folders = tree(tenant)
    now = folders["c"]["createdAt"]
    assert folders["c"] == {
        "folderId": "c",
        "folderName": "C",
        "organizationId": "acme",
        "parentFolderId": "b",
        "ancestors": ["a", "b"],
        "accessType": "restricted",
        "inheritAccessFromParent": True,
        "createdAt": now,
        "lastUpdated": now,
        "color": "red",
    }
    assert (folders["a"]["parentFolderId"], folders["a"]["ancestors"]) == ("root", [])
    assert folders["a"]["inheritAccessFromParent"] is False


def test_add_fails_for_single_folders(tenant: Caller) -> None:
    add(tenant, {"folderId": "a", "folderName": "A"})

    results = add(
        tenant,
        {"folderId": "a", "folderName": "Other"},
        {"folderId": "orphan", "parentFolderId": "nowhere"},
        {"folderId": "grandchild", "parentFolderId": "orphan"},
        {"folderId": "x", "parentFolderId": "y"},
        {"folderId": "y", "parentFolderId": "x"},
        {"folderId": "self", "parentFolderId": "self"},
        {"folderId": "b", "parentFolderId": "a"},
    )

    assert results["a"] == {"success": False, "id": "a", "message": "Folder already exists."}
    for lost in ("orphan", "grandchild", "x", "y", "self"):
        assert results[lost] == {"success": False, "id": lost, "message": "Parent folder does not exist."}
    assert results["b"]["success"] is True
    folders = tree(tenant)
    assert set(folders) == {"a", "b"}
    assert folders["a"]["folderName"] == "A"


def test_containers_are_created_only_on_request(tenant: Caller) -> None:
    folder = {"folderId": "a", "parentFolderId": "p"}

    results = tenant("add_folder", organizationId="acme", folders=[folder])
    assert results["a"] == {"success": False, "id": "a", "message": "Organization does not exist."}
    assert tenant("get_organizations_v1") == []
    assert add(tenant, folder)["a"]["success"] is False

    assert add(tenant, folder, createFolder=True)["a"]["success"] is True
    assert tree(tenant)["a"]["ancestors"] == ["p"]


def test_root_is_not_a_folder_id(tenant: Caller) -> None:
    assert tenant.refused("add_folder", organizationId="acme", folders=[{"folderId": "root"}])[0] == 400


def test_get_folders_by_id_and_depth(tenant: Caller) -> None:
    add(
        tenant,
        {"folderId": "a"},
        {"folderId": "b", "parentFolderId": "a"},
        {"folderId": "c", "parentFolderId": "b"},
        {"folderId": "other"},
    )

    assert set(tree(tenant)) == {"a", "b", "c", "other"}
    assert set(tree(tenant, folderId="root")) == {"a", "b", "c", "other"}
    assert set(tree(tenant, maxDepth=0)) == {"a", "other"}
    assert set(tree(tenant, folderId="a")) == {"a", "b", "c"}
    assert set(tree(tenant, folderId="b", maxDepth=0)) == {"b"}
    assert set(tree(tenant, folderId="a", maxDepth=1)) == {"a", "b"}
    (top,) = tenant("get_folders", organizationId="acme", folderId="a", maxDepth=1)
    # What was cut off is left out, what is empty is shown empty.
    assert "subFolders" not in top["subFolders"][0]
    (lowest,) = tenant("get_folders", organizationId="acme", folderId="c")
    assert lowest["subFolders"] == []
    assert tenant.refused("get_folders", organizationId="acme", folderId="nowhere")[:2] == (404, "NOT_FOUND")
    assert tenant("get_folders", organizationId="nobody") == []


def test_move_with_descendants(tenant: Caller) -> None:
    add(
        tenant,
        {"folderId": "open", "accessType": "public"},
        {"folderId": "shut", "accessType": "restricted"},
        {"folderId": "a", "parentFolderId": "open", "folderName": "A"},
        {"folderId": "b", "parentFolderId": "a"},
        {"folderId": "own", "parentFolderId": "b", "accessType": "organizationPrivate"},
        {"folderId": "below", "parentFolderId": "own"},
    )
    tenant("add_documents", organizationId="acme", folderId="b", documents=[{"documentId": "d"}])
    assert tenant("get_documents", organizationId="acme")[0]["accessType"] == "public"

    results = tenant("update_folder", organizationId="acme", folders=[{"folderId": "a", "parentFolderId": "shut"}])

    assert results == {"a": {"success": True, "id": "a", "message": "Folder updated."}}
    folders = tree(tenant)
    assert folders["a"]["folderName"] == "A"
    assert folders["b"]["ancestors"] == ["shut", "a"]
    assert folders["b"]["accessType"] == "restricted"
    assert folders["below"]["ancestors"] == ["shut", "a", "b", "own"]
    assert folders["below"]["accessType"] == "organizationPrivate"
    assert tenant("get_documents", organizationId="acme")[0]["accessType"] == "restricted"

    tenant("update_folder", organizationId="acme", folders=[{"folderId": "b", "parentFolderId": "root"}])
    folders = tree(tenant)
    assert (folders["b"]["parentFolderId"], folders["b"]["ancestors"]) == ("root", [])
    assert folders["b"]["accessType"] == "organizationPrivate"


def test_move_fails_for_single_folders(tenant: Caller) -> None:
    add(
        tenant,
        {"folderId": "a"},
        {"folderId": "b", "parentFolderId": "a"},
        {"folderId": "c", "parentFolderId": "b"},
        {"folderId": "free"},
    )

    results = tenant(
        "update_folder",
        organizationId="acme",
        folders=[
            {"folderId": "a", "parentFolderId": "c", "folderName": "no"},
            {"folderId": "b", "parentFolderId": "b"},
            {"folderId": "free", "parentFolderId": "nowhere"},
            {"folderId": "who", "folderName": "W"},
            {"folderId": "c", "folderName": "C", "parentFolderId": "a"},
        ],
    )

    assert results["a"]["message"] == "A folder cannot be moved into itself or a folder below it."
    assert results["b"]["success"] is False
    assert results["free"] == {"success": False, "id": "free", "message": "Parent folder does not exist."}
    assert results["who"] == {"success": False, "id": "who", "message": "Folder does not exist."}
    assert results["c"]["success"] is True
    folders = tree(tenant)
    assert folders["a"]["folderName"] == "a"
    assert folders["c"]["ancestors"] == ["a"]
    assert folders["c"]["folderName"] == "C"


def test_two_moves_of_one_batch_cannot_create_a_cycle(tenant: Caller) -> None:
    add(tenant, {"folderId": "a"}, {"folderId": "b"})

    results = tenant(
        "update_folder",
        organizationId="acme",
        folders=[{"folderId": "a", "parentFolderId": "b"}, {"folderId": "b", "parentFolderId": "a"}],
    )

    assert (results["a"]["success"], results["b"]["success"]) == (True, False)
    assert tree(tenant)["a"]["ancestors"] == ["b"]


def test_maximum_depth(tenant: Caller) -> None:
    chain = [{"folderId": "f0"}] + [
        {"folderId": f"f{number}", "parentFolderId": f"f{number - 1}"} for number in range(1, MAX_DEPTH + 2)
    ]

    results = add(tenant, *chain)

    assert [folder for folder, result in results.items() if not result["success"]] == [
        f"f{MAX_DEPTH}",
        f"f{MAX_DEPTH + 1}",
    ]
    assert len(tree(tenant)) == MAX_DEPTH
    add(tenant, {"folderId": "top"})
    moved = tenant("update_folder", organizationId="acme", folders=[{"folderId": "f0", "parentFolderId": "top"}])
    assert moved["f0"]["success"] is False
    moved = tenant("update_folder", organizationId="acme", folders=[{"folderId": "f1", "parentFolderId": "top"}])
    assert moved["f1"]["success"] is True


def test_access_type_is_inherited(tenant: Caller) -> None:
    add(
        tenant,
        {"folderId": "a"},
        {"folderId": "b", "parentFolderId": "a"},
        {"folderId": "c", "parentFolderId": "b"},
        {"folderId": "d", "parentFolderId": "c"},
    )
    tenant("update_folder_access", organizationId="acme", folderIds=["c"], accessType="public")

    results = tenant("update_folder_access", organizationId="acme", folderIds=["a", "who"], accessType="restricted")

    assert results == {
        "a": {"success": True, "accessType": "restricted", "message": "Folder access updated."},
        "who": {"success": False, "message": "Folder does not exist."},
    }
    assert {name: folder["accessType"] for name, folder in tree(tenant).items()} == {
        "a": "restricted",
        "b": "restricted",
        "c": "public",
        "d": "public",
    }
    results = tenant("update_folder_access", organizationId="acme", folderIds=["c"], inheritFromParent=True)
    assert results["c"]["accessType"] == "restricted"
    assert tree(tenant)["d"]["accessType"] == "restricted"


def test_update_folder_keeps_the_access_type(tenant: Caller) -> None:
    add(tenant, {"folderId": "a", "accessType": "restricted"})
    tenant("update_folder", organizationId="acme", folders=[{"folderId": "a", "accessType": "public"}])

    assert tree(tenant)["a"]["accessType"] == "restricted"


def test_delete_folder_with_contents(tenant: Caller) -> None:
    add(tenant, {"folderId": "a"}, {"folderId": "b", "parentFolderId": "a"}, {"folderId": "kept"})
    for folder, document in (("b", "gone"), ("kept", "stays")):
        tenant("add_documents", organizationId="acme", folderId=folder, documents=[{"documentId": document}])
        tenant("add_users", organizationId="acme", documentId=document, users=[{"userId": "ada"}])
        tenant("add_users", organizationId="acme", folderId=folder, users=[{"userId": "bob"}])

    assert tenant("delete_folder", organizationId="acme", folderId="a") is None

    assert set(tree(tenant)) == {"kept"}
    assert [document["id"] for document in tenant("get_documents", organizationId="acme")] == ["stays"]
    assert set(tenant("get_users", organizationId="acme", allDocuments=True, groupByDocumentId=True)) == {"stays"}
    assert tenant("get_users", organizationId="acme", folderId="b") == []
    assert len(tenant("get_users", organizationId="acme", folderId="kept")) == 1
    assert tenant.refused("delete_folder", organizationId="acme", folderId="a")[:2] == (404, "NOT_FOUND")


TYPES = st.sampled_from([None, "public", "organizationPrivate", "restricted"])
MOVES = st.lists(st.tuples(st.integers(0, 7), st.integers(-1, 7)), min_size=1, max_size=6)


@settings(max_examples=examples(40), deadline=None)
@given(types=st.lists(TYPES, min_size=8, max_size=8), batches=st.lists(MOVES, min_size=1, max_size=4))
def test_random_moves_match_a_model(tmp_path_factory: Any, types: list[str | None], batches: list[Any]) -> None:
    """After any moves, the tree matches a plain dictionary of parents."""
    world = BackendWorld(f"sqlite:///{tmp_path_factory.mktemp('tree')}/b.db")
    tenant = world.tenant()
    add(tenant, *({"folderId": f"f{n}"} | ({"accessType": t} if t else {}) for n, t in enumerate(types)))
    parents = {f"f{number}": "root" for number in range(8)}

    def path_to_top(folder: str) -> list[str]:
        way = []
        while folder != "root":
            way.append(folder)
            folder = parents[folder]
        return way

    for batch in batches:
        last = {}
        # Of several moves of one folder, the last one is carried out.
        for child, parent in dict(batch).items():
            target = "root" if parent < 0 else f"f{parent}"
            allowed = f"f{child}" not in path_to_top(target)
            if allowed:
                parents[f"f{child}"] = target
            last[f"f{child}"] = allowed
        results = tenant(
            "update_folder",
            organizationId="acme",
            folders=[
                {"folderId": f"f{child}", "parentFolderId": "root" if parent < 0 else f"f{parent}"}
                for child, parent in batch
            ],
        )
        assert {folder: result["success"] for folder, result in results.items()} == last

    own = {f"f{number}": access_type for number, access_type in enumerate(types)}
    for folder_id, folder in tree(tenant).items():
        above = path_to_top(folder_id)
        assert folder["parentFolderId"] == parents[folder_id]
        assert folder["ancestors"] == above[:0:-1]
        assert folder["accessType"] == next((own[f] for f in above if own[f]), "organizationPrivate")
    world.close()
