"""Limits of metadata, in a request and as stored."""

from typing import Any, NamedTuple

import pytest

from app.contract import limits

from .conftest import Caller

ORGANIZATION = {"organizationId": "acme"}


class Kind(NamedTuple):
    """A kind of item with metadata, and the operations that store it."""

    add: str
    update: str
    key: str
    fields: dict[str, Any]
    """The other fields of a request."""


KINDS = {
    "organizations": Kind("add_organizations", "update_organizations", "organizationId", {}),
    "users": Kind("add_users", "update_users", "userId", ORGANIZATION),
    "documents": Kind("add_documents", "update_documents", "documentId", ORGANIZATION),
    "folders": Kind("add_folder", "update_folder", "folderId", ORGANIZATION),
}
LONGEST = "x" * (limits.METADATA_BYTES - len('{"note":""}'))
"""The longest value of ``note``."""


@pytest.mark.parametrize("name", KINDS)
def test_metadata_of_a_request_has_a_limit(tenant: Caller, name: str) -> None:
    kind = KINDS[name]
    tenant("add_organizations", organizations=[ORGANIZATION])
    longest = kind.fields | {name: [{kind.key: "one", "note": LONGEST}]}
    too_long = kind.fields | {name: [{kind.key: "one", "note": f"{LONGEST}x"}]}
    message = f"data.{name}[0]: must have at most {limits.METADATA_BYTES} bytes of metadata as JSON"
    assert tenant.refused(kind.add, **too_long) == (400, "INVALID_ARGUMENT", message)
    assert tenant(kind.add, **longest)["one"]["success"]
    assert tenant.refused(kind.update, **too_long) == (400, "INVALID_ARGUMENT", message)


WIDE = "\u00e4" * (len(LONGEST) // 2)
"""As many bytes as ``LONGEST``, or one less, in half as many characters."""


@pytest.mark.parametrize("longest", [LONGEST, WIDE], ids=["ASCII", "two bytes per character"])
@pytest.mark.parametrize("name", KINDS)
def test_stored_metadata_has_a_limit(tenant: Caller, name: str, longest: str) -> None:
    kind = KINDS[name]

    def update(**metadata: str) -> dict[str, Any]:
        result: dict[str, Any] = tenant(kind.update, **kind.fields, **{name: [{kind.key: "one"} | metadata]})["one"]
        return result

    tenant("add_organizations", organizations=[ORGANIZATION])
    tenant(kind.add, **kind.fields, **{name: [{kind.key: "one"}]})
    # Each value is shorter than a share by more than its name, so that all shares fit, and nothing more.
    shares = limits.STORED_METADATA_BYTES // limits.METADATA_BYTES
    for number in range(shares):
        assert update(**{f"note{number}": longest[9:]})["success"]
    refused = update(further=longest[9:])
    assert not refused["success"]
    assert refused["message"] == f"Metadata would be longer than {limits.STORED_METADATA_BYTES} bytes."
    # A value that does not increase the length is accepted.
    assert update(note1="")["success"]


@pytest.mark.parametrize("name", KINDS)
def test_an_update_merges_items_with_one_id_and_stores_all_or_nothing(tenant: Caller, name: str) -> None:
    kind = KINDS[name]
    tenant("add_organizations", organizations=[ORGANIZATION])
    tenant(kind.add, **kind.fields, **{name: [{kind.key: "one"}]})

    def update(*items: dict[str, Any]) -> bool:
        results = tenant(kind.update, **kind.fields, **{name: [{kind.key: "one"} | item for item in items]})
        succeeded: bool = results["one"]["success"]
        return succeeded

    values = [{f"note{number}": LONGEST[9:]} for number in range(limits.STORED_METADATA_BYTES // limits.METADATA_BYTES)]
    assert not update(*values, {"further": LONGEST[9:]}, {"name": "One"})
    # All of them together would be too long if one of the first update were stored.
    assert update(*values, {"note1": "new"})
    assert update({"further": LONGEST[9:]})
    assert not update({"last": LONGEST[9:]})


def test_an_update_of_a_folder_fails_if_one_of_its_items_does(tenant: Caller) -> None:
    tenant("add_folder", organizationId="acme", createOrganization=True, folders=[{"folderId": "f"}, {"folderId": "g"}])

    def update(*items: dict[str, Any]) -> Any:
        return tenant("update_folder", organizationId="acme", folders=[{"folderId": "f"} | item for item in items])["f"]

    bad, good = {"parentFolderId": "missing"}, {"folderName": "new", "color": "red"}
    for items in ((bad, good), (good, bad)):
        assert update(*items)["message"] == "Parent folder does not exist."
        assert tenant("get_folders", organizationId="acme", folderId="f")[0]["folderName"] == "f"
    assert update({"parentFolderId": "g"}, good)["success"]
    (folder,) = tenant("get_folders", organizationId="acme", folderId="f")
    assert (folder["parentFolderId"], folder["folderName"], folder["color"]) == ("g", "new", "red")


def test_an_update_never_opens_a_document_by_an_invalid_access_type(tenant: Caller) -> None:
    tenant("add_organizations", organizations=[ORGANIZATION])
    tenant("add_documents", **ORGANIZATION, documents=[{"documentId": "d"}])
    tenant(
        "update_documents",
        **ORGANIZATION,
        documents=[{"documentId": "d", "accessType": "restricted"}, {"documentId": "d", "accessType": "open"}],
    )
    assert tenant("get_documents", **ORGANIZATION)[0]["accessType"] == "restricted"
