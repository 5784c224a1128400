from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

import app.backend
from app.backend import app as backend_app
from app.backend.events import EVENT_KINDS
from app.backend.http.call import Call
from app.contract.operations import by_name

from .conftest import Caller, WorldMaker

ORG = {"organizationId": "acme"}
TRIGGERS = """comment_annotation.add comment.add comment.update comment.delete comment_annotation.status_change
comment_annotation.assign comment_annotation.priority_change comment_annotation.suggestion_accept
comment_annotation.suggestion_reject comment.reaction_add comment.reaction_delete"""


def test_every_trigger_of_the_reference_is_produced_by_an_operation() -> None:
    assert set(TRIGGERS.split()) <= set(EVENT_KINDS)
    for kind in EVENT_KINDS.values():
        assert kind.operations
        for name in kind.operations:
            assert not by_name(name).is_read


def test_the_table_in_the_readme_matches_the_code() -> None:
    text = (Path(app.backend.__file__).parent / "README.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(("| `comment", "| `crdt"))]

    assert rows == [
        [
            f"`{kind.type}`",
            ", ".join(f"`{name}`" for name in kind.operations),
            kind.notified,
            kind.decision or "–",
        ]
        for kind in EVENT_KINDS.values()
    ]


def test_an_error_of_a_sink_rolls_back_the_request(make_world: WorldMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Connection, __: Call[Any], events: Any) -> None:
        raise RuntimeError(f"{len(events)} events")

    monkeypatch.setattr(backend_app, "notify", refuse)
    tenant: Caller = make_world().tenant()
    tenant("add_documents", **ORG, documents=[{"documentId": "d"}], createOrganization=True)

    annotation = {"commentData": [{"commentText": "x", "from": {"userId": "ada"}}]}
    response = tenant.call("add_comment_annotations", **ORG, documentId="d", commentAnnotations=[annotation])

    assert response.status_code == 500
    assert tenant("get_comment_annotations", **ORG) == []
    assert tenant("get_activity_logs", **ORG) == []


def test_editor_data_writes_activities(make_world: WorldMaker) -> None:
    tenant = make_world().tenant()
    editor = ORG | {"documentId": "d", "editorId": "e", "type": "text"}
    tenant("add_crdt_data", **editor, data="a")
    tenant("update_crdt_data", **editor, data="b")

    activities = tenant("get_activity_logs", **ORG, featureTypes=["crdt"], order="asc")

    assert sorted(item["actionType"] for item in activities) == ["crdt.add", "crdt.update"]
    assert {item["targetEntityId"] for item in activities} == {"e"}


def test_events_of_one_request_keep_their_order(make_world: WorldMaker) -> None:
    tenant = make_world().tenant()
    tenant("add_documents", **ORG, documents=[{"documentId": "d"}], createOrganization=True)
    sent = [{"commentId": f"c{number}", "commentText": "x", "from": {"userId": "ada"}} for number in range(12)]
    tenant("add_comment_annotations", **ORG, documentId="d", commentAnnotations=[{"commentData": sent}])

    for order, first in (("asc", 1), ("desc", -1)):
        activities = tenant("get_activity_logs", **ORG, order=order)[::first]
        assert [item["actionType"] for item in activities] == ["comment_annotation.add"] + ["comment.add"] * 11
        assert [item["displayMessageTemplateData"]["commentId"] for item in activities] == [
            item["commentId"] for item in sent
        ]
