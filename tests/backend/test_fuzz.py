"""Sends a few generated requests and compares the responses with the OpenAPI document.

The requests are always the same. `python -m tests.soak fuzz-backend` sends others, to every path.
"""

from pathlib import Path

import pytest

from app.contract.operations import by_name
from tests.soak.fuzz_backend import OfflineWorld, fuzz

A_FEW = (
    "generate_token",
    "get_users",
    "add_users",
    "update_folder",
    "search_judgments",
    "update_notifications",
    "create_advanced_webhook_endpoint",
    "add_comment_annotations",
    "add_permissions",
    "get_workspace",
)


@pytest.mark.extended
@pytest.mark.parametrize("name", A_FEW)
def test_responses_match_the_openapi_document(tmp_path: Path, name: str) -> None:
    world = OfflineWorld(f"sqlite:///{tmp_path}/b.db")

    found = fuzz(world, 1, examples=2, paths={by_name(name).path})

    world.close()
    assert found.problems == []
    assert found.requests >= 2
    # Some got past the credentials.
    assert {200, 400, 404} & set(found.codes)
