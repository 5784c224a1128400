from .conftest import Caller


def test_organizations_are_added_and_read(tenant: Caller) -> None:
    results = tenant(
        "add_organizations",
        organizations=[
            {"organizationId": "acme", "organizationName": "Acme", "plan": {"seats": [1, 2.5, None]}},
            {"organizationId": "nameless", "disabled": True},
        ],
    )

    assert results == {
        "acme": {"success": True, "id": "acme", "message": "Organization added."},
        "nameless": {"success": True, "id": "nameless", "message": "Organization added."},
    }
    acme = {"id": "acme", "organizationName": "Acme", "disabled": False, "plan": {"seats": [1, 2.5, None]}}
    nameless = {"id": "nameless", "organizationName": "nameless", "disabled": True}
    assert tenant("get_organizations_v1") == [acme, nameless]
    assert tenant("get_organizations_v1", organizationIds=["acme", "who"]) == [acme]
    assert tenant("get_organizations_v1", organizationIds=[]) == []
    assert tenant("get_organizations", organizationIds=["nameless"]) == [nameless]


def test_an_organization_is_added_once(tenant: Caller) -> None:
    tenant("add_organizations", organizations=[{"organizationId": "acme", "organizationName": "Acme"}])

    results = tenant(
        "add_organizations",
        organizations=[
            {"organizationId": "acme", "organizationName": "Other"},
            {"organizationId": "new", "organizationName": "First"},
            {"organizationId": "new", "organizationName": "Second"},
        ],
    )

    assert results["acme"] == {"success": False, "id": "acme", "message": "Organization already exists."}
    assert results["new"]["success"] is True
    names = {wire["id"]: wire["organizationName"] for wire in tenant("get_organizations_v1")}
    assert names == {"acme": "Acme", "new": "First"}


def test_v1_reads_at_most_thirty_ids(tenant: Caller) -> None:
    ids = [f"o{number}" for number in range(31)]

    assert tenant.refused("get_organizations_v1", organizationIds=ids)[:2] == (400, "INVALID_ARGUMENT")
    assert tenant("get_organizations_v1", organizationIds=ids[:30]) == []


def test_organizations_are_updated_field_by_field(tenant: Caller) -> None:
    tenant("add_organizations", organizations=[{"organizationId": "a", "organizationName": "A", "x": 1, "y": 2}])

    results = tenant(
        "update_organizations",
        organizations=[{"organizationId": "a", "y": 3}, {"organizationId": "b", "organizationName": "B"}],
    )

    assert results == {
        "a": {"success": True, "id": "a", "message": "Organization updated."},
        "b": {"success": False, "id": "b", "message": "Organization does not exist."},
    }
    assert tenant("get_organizations_v1") == [{"id": "a", "organizationName": "A", "disabled": False, "x": 1, "y": 3}]


def test_organizations_are_disabled_and_enabled(tenant: Caller) -> None:
    tenant("add_organizations", organizations=[{"organizationId": "a"}])

    results = tenant("disable_organizations", organizationIds=["a", "b"], disabled=True)

    assert results["a"]["success"] is True
    assert results["b"] == {"success": False, "id": "b", "message": "Organization does not exist."}
    assert tenant("get_organizations_v1")[0]["disabled"] is True
    tenant("disable_organizations", organizationIds=["a"], disabled=False)
    assert tenant("get_organizations_v1")[0]["disabled"] is False


def test_delete_organization_with_contents(tenant: Caller) -> None:
    for organization in ("gone", "kept"):
        tenant("add_users", organizationId=organization, users=[{"userId": "ada"}])
        tenant("add_folder", organizationId=organization, folders=[{"folderId": "f"}])
        tenant("add_documents", organizationId=organization, documents=[{"documentId": "d"}], folderId="f")
        tenant("add_users", organizationId=organization, documentId="d", users=[{"userId": "bob"}])
        tenant("add_users_to_groups", organizationId=organization, organizationUserGroupId="g", userIds=["ada"])

    results = tenant("delete_organizations", organizationIds=["gone", "never"])

    assert results["gone"] == {"success": True, "id": "gone", "message": "Organization deleted."}
    assert results["never"] == {"success": False, "id": "never", "message": "Organization does not exist."}
    # A new organization with this id is empty.
    tenant("add_organizations", organizations=[{"organizationId": "gone"}])
    for organization, number in (("gone", 0), ("kept", 1)):
        assert len(tenant("get_users", organizationId=organization)) == number
        assert len(tenant("get_users", organizationId=organization, allDocuments=True)) == number
        assert len(tenant("get_users", organizationId=organization, organizationUserGroupIds=["g"])) == number
        assert len(tenant("get_folders", organizationId=organization)) == number
        assert len(tenant("get_documents", organizationId=organization)) == number
