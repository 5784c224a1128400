"""mypy checks calls of the typed client, without a plugin or settings."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

SAMPLE = """
from typing import assert_type

from app.contract import operations
from app.client.client import BackendClient
from app.contract.webhooks import CreateEndpointRequest
from app.contract.base import ItemResult, UserReference
from app.contract.comments import AddCommentsRequest, CommentInput, ReactionInput
from app.contract.notifications import NotificationUpdate, TemplateData, UpdateNotificationsRequest
from app.contract.permissions import AddPermissionsRequest, GrantedUser, ResourceGrant, ResourceGrants
from app.contract.users import AddUsersRequest, GetUsersRequest, User, UserInput

ada = UserReference(user_id="ada", name="Ada")
TemplateData(custom="x")
data = TemplateData(action_user=ada, recipient_user="bob", place="here", **{"in other words": "x"})
comment = CommentInput(comment_text="x", from_=ada, reactions=[ReactionInput(icon="+", from_=ada)])
AddCommentsRequest(organization_id="acme", document_id="d", annotation_id="t", comment_data=[comment])
UpdateNotificationsRequest(
    organization_id="acme",
    notifications=[
        NotificationUpdate(id="n", display_headline_message_template_data=data, persist_read_for_users=False)
    ],
)
UserInput(user_id="ada", access_role="viewer", expires_at=1_900_000_000)
grant = ResourceGrant(type="document", id="d", organization_id="acme", expires_at=1_900_000_000)
AddPermissionsRequest(user=GrantedUser(user_id="ada"), permissions=ResourceGrants(resources=[grant]))
CreateEndpointRequest(url="https://acme.example/hook", rate_limit=5)


def use(client: BackendClient) -> None:
    request = AddUsersRequest(organization_id="acme", users=[UserInput(user_id="ada", name="Ada")])
    assert_type(client.call(operations.ADD_USERS, request).data, dict[str, ItemResult])
    client.call(operations.GET_USERS, GetUsersRequest(organization_id="acme", page_size=5000, page_token=""))
    client.call(operations.GET_USERS, request)  # type: ignore[misc]


UserInput(user_id="ada", acess_role="viewer")  # type: ignore[call-arg]
UserInput(user_id="ada", access_role="admin")  # type: ignore[arg-type]
UserInput(name="Ada")  # type: ignore[call-arg]
UserInput(user_id="ada", expires_at="tomorrow")  # type: ignore[arg-type]
TemplateData(custom=5)  # type: ignore[arg-type]
CommentInput(comment_text="x")  # type: ignore[call-arg]
CommentInput(comment_text="x", from_="ada")  # type: ignore[arg-type]
AddUsersRequest(organisation_id="acme", users=[])  # type: ignore[call-arg]
"""
"""If an expected error does not occur, mypy reports an unused comment."""


@pytest.mark.extended
def test_calls_are_checked_without_a_plugin(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE)
    (tmp_path / "mypy.ini").write_text("[mypy]\n")
    known: Path = pytestconfig.cache.mkdir("mypy") if pytestconfig.cache is not None else tmp_path / "cache"

    # The package as it is installed, not the files around here.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", "--cache-dir", known, "sample.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_checked_sample_runs() -> None:
    names: dict[str, object] = {}
    sound = SAMPLE.split("def use", maxsplit=1)[0]
    exec(compile(sound, "sample.py", "exec"), names)

    template_data, comment = names["data"], names["comment"]
    assert template_data.to_wire() == {  # type: ignore[attr-defined]
        "actionUser": {"userId": "ada", "name": "Ada"},
        "recipientUser": "bob",
        "place": "here",
        "in other words": "x",
    }
    assert comment.to_wire()["from"] == {"userId": "ada", "name": "Ada"}  # type: ignore[attr-defined]
