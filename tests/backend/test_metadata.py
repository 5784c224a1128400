"""Limits of metadata, in a request and as stored."""

from typing import Any

import pytest

from app.contract import limits

from .conftest import Caller

OF = {"organizationId": "acme"}
KINDS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "organizations": ("add_organizations", "update_organizations", "organizationId", {}),
    "users": ("add_users", "update_users", "userId", OF),
    "documents": ("add_documents", "update_documents", "documentId", OF),
    "folders": ("add_folder", "update_folder", "folderId", OF),
}
FULL = "x" * (limits.METADATA_BYTES - len('{"note":""}'))


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_has_a_limit(tenant: Caller, kind: str) -> None:
    add, update, key, rest = KINDS[kind]
    tenant("add_organizations", organizations=[OF])
    item = {key: "one"}
    refused = (400, "INVALID_ARGUMENT", f"data.{kind}[0]: must have at most 65536 bytes of metadata as JSON")
    assert tenant.refused(add, **rest, **{kind: [item | {"note": FULL + "x"}]}) == refused
    assert tenant(add, **rest, **{kind: [item | {"note": FULL}]})["one"]["success"]
    assert tenant.refused(update, **rest, **{kind: [item | {"note": FULL + "x"}]}) == refused


@pytest.mark.parametrize("kind", KINDS)
def test_stored_metadata_has_a_limit(tenant: Caller, kind: str) -> None:
    add, update, key, rest = KINDS[kind]
    tenant("add_organizations", organizations=[OF])
    item = {key: "one"}
    tenant(add, **rest, **{kind: [item]})
    outcomes = [tenant(update, **rest, **{kind: [item | {f"note{number}": FULL[9:]}]})["one"] for number in range(6)]
    assert [outcome["success"] for outcome in outcomes] == [True, True, True, True, False, False]
    assert outcomes[-1]["message"] == "Metadata would be longer than 262144 bytes."
    # What does not make it longer still goes.
    assert tenant(update, **rest, **{kind: [item | {"note1": ""}]})["one"]["success"]
