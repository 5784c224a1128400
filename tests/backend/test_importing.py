import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from app.backend.collaboration.importing import Import, ImportFailedError
from app.backend.embedders import open_embedder

from .conftest import BackendWorld, Caller

PLACE = {"organizationId": "acme", "documentId": "d"}
ADA = {"userId": "ada", "name": "Ada"}
RECORDS: list[dict[str, Any]] = [
    {"kind": "annotation", "annotationId": "t", "status": "OPEN", "assignedTo": {"userId": "bob"}, "createdAt": 5},
    {"kind": "comment", "annotationId": "t", "commentId": "c1", "commentText": "hi", "from": ADA, "createdAt": 10},
    {"kind": "comment", "annotationId": "t", "commentId": "c0", "commentText": "ho", "from": ADA, "createdAt": 10},
    {"kind": "comment", "annotationId": "u", "commentId": "c1", "commentText": "x", "from": ADA, "more": 1},
    {
        "kind": "reaction",
        "reactionId": "r",
        "icon": "+1",
        "from": ADA,
        "annotationId": "t",
        "commentId": "c1",
        "createdAt": 20,
    },
    {"kind": "recording", "recordingId": "v", "from": ADA, "url": "https://acme.example/v", "createdAt": 30},
    {
        "kind": "notification",
        "id": "n",
        "actionUser": {"userId": "bob"},
        "notifyUsers": [ADA],
        "readByUserIds": ["zoe"],
        "persistReadForUserIds": ["zoe"],
        "timestamp": 40,
    },
    {
        "kind": "activity",
        "id": "a",
        "featureType": "recorder",
        "actionType": "recorder.add",
        "actionUser": ADA,
        "timestamp": 50,
    },
    {"kind": "judgment", "recordId": "j", "decision": "approve", "reasoning": "fine", "createdAt": 60},
]


def write_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(PLACE | record) + "\n" for record in records))
    return path


class Importer:
    """Imports files for one tenant, and collects problems and batch sizes."""

    def __init__(self, world: BackendWorld, tenant: Caller) -> None:
        self.world = world
        self.tenant = tenant
        self.problems: list[str] = []
        self.batches: list[int] = []

    def __call__(self, path: Path, *, create_missing: bool = False, api_key: str | None = None) -> dict[str, int]:
        made = Import(
            engine=self.world.engine,
            embedder=open_embedder("hashing"),
            api_key_id=api_key or self.tenant.ids["api_key"],
            now=1000,
            create_missing=create_missing,
            on_problem=self.problems.append,
            on_progress=self.batches.append,
        )
        assert made.run(path) == len(self.problems)
        return made.counts


@pytest.fixture
def importer(world: BackendWorld) -> Importer:
    return Importer(world, world.tenant())


def everything(tenant: Caller) -> list[Any]:
    org = {"organizationId": "acme"}
    return [
        tenant("get_comment_annotations", **org, order="asc"),
        tenant("get_all_user_data", **org, userId="ada"),
        tenant("get_notifications", **org),
        tenant("get_activity_logs", **org),
        tenant("query_judgments", **org),
    ]


def test_every_kind_is_imported_and_returned_like_added_data(importer: Importer, tmp_path: Path) -> None:
    counts = importer(write_lines(tmp_path / "data.jsonl", RECORDS), create_missing=True)

    assert counts == {
        "annotation": 1, "comment": 3, "reaction": 1, "recording": 1, "notification": 1, "activity": 1, "judgment": 1,
    }  # fmt: skip
    assert importer.problems == []
    threads, data, notifications, activities, judgments = everything(importer.tenant)
    assert [(item["annotationId"], item["createdAt"]) for item in threads] == [("t", 5), ("u", 1000)]
    assert [item["commentId"] for item in threads[0]["comments"]] == ["c1", "c0"]
    assert threads[0]["comments"][0]["reactions"] == [{"reactionId": "r", "icon": "+1", "from": ADA, "createdAt": 20}]
    assert threads[1]["comments"][0]["more"] == 1
    assert [len(data[item]) for item in ("comments", "reactions", "recordings", "notifications")] == [3, 1, 1, 1]
    assert data["recordings"] == [
        {"recordingId": "v", "from": ADA, "url": "https://acme.example/v", "documentId": "d", "createdAt": 30}
    ]
    assert notifications[0]["readByUserIds"] == notifications[0]["persistReadForUserIds"] == ["zoe"]
    # Imported records create no activities.
    assert [item["id"] for item in activities] == ["a"]
    assert [(item["recordId"], "kind" in item) for item in judgments] == [("j", False)]


def test_a_second_import_changes_nothing(importer: Importer, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", RECORDS)
    importer(path, create_missing=True)
    before = everything(importer.tenant)

    importer(path)

    assert everything(importer.tenant) == before


def test_comments_are_replaced_with_one_statement_per_thread(importer: Importer, tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "f.jsonl",
        [
            {"kind": "comment", "annotationId": thread, "commentId": f"c{number}", "commentText": "x", "from": ADA}
            for thread in ("t", "u")
            for number in range(50)
        ],
    )
    deletes: list[Any] = []

    @event.listens_for(importer.world.engine, "before_cursor_execute")
    def _collect(*arguments: Any) -> None:
        _, _, statement, parameters, _, is_many = arguments
        if statement.startswith("DELETE FROM comment "):
            deletes.extend(parameters if is_many else [parameters])

    importer(path, create_missing=True)
    assert deletes == []
    importer(path)
    assert len(deletes) == 2
    comments = importer.tenant("get_comment_annotations", organizationId="acme", documentId="d")
    assert [len(thread["comments"]) for thread in comments] == [50, 50]


def test_a_record_replaces_the_one_with_its_id(importer: Importer, tmp_path: Path) -> None:
    importer(write_lines(tmp_path / "one.jsonl", RECORDS), create_missing=True)
    comment = RECORDS[1] | {"from": {"userId": "eve"}, "commentText": "a longer text"}

    importer(write_lines(tmp_path / "two.jsonl", [comment | {"commentText": "no"}, comment]))

    threads = everything(importer.tenant)[0]
    assert [item["commentText"] for item in threads[0]["comments"] if item["commentId"] == "c1"] == ["a longer text"]
    eves = importer.tenant("get_all_user_data", organizationId="acme", userId="eve")["comments"]
    assert [item["commentId"] for item in eves] == ["c0", "c1"] or [item["commentId"] for item in eves] == ["c1", "c0"]


def test_invalid_lines_are_reported_by_file_and_line(importer: Importer, tmp_path: Path) -> None:
    good = json.dumps(PLACE | RECORDS[1])
    lines = [
        good,
        "",
        "nonsense",
        '{"the body": 1, "the body": 2}',
        "[]",
        '{"kind": "wish"}',
        json.dumps(PLACE | RECORDS[1] | {"commentText": 5}),
        json.dumps(PLACE | RECORDS[1] | {"from": {}}),
        json.dumps(PLACE | RECORDS[8] | {"decision": ""}),
        json.dumps(PLACE | RECORDS[1] | {"documentId": "nowhere"}),
        json.dumps(PLACE | RECORDS[1] | {"organizationId": "nobody"}),
        json.dumps(PLACE | RECORDS[1] | {"documentId": "e", "commentId": "c9"}),
        json.dumps(PLACE | RECORDS[0] | {"location": {"id": "x" * 600}}),
        json.dumps(PLACE | RECORDS[1] | {"commentHtml": "a\0b"}),
        "x" * (4 * 1024 * 1024 + 1),
        good,
    ]
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(lines))
    documents = [{"documentId": "d"}, {"documentId": "e"}]
    importer.tenant("add_documents", organizationId="acme", documents=documents, createOrganization=True)

    counts = importer(path)

    assert counts == {"comment": 2}
    problems = dict(problem.removeprefix("bad.jsonl:").split(": ", 1) for problem in importer.problems)
    assert list(problems) == ["3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"]
    assert problems["4"].startswith("the line has the key 'the body' twice")
    assert problems["5"] == "must be a JSON object"
    assert problems["6"].startswith("kind: must be one of annotation, comment,")
    assert problems["7"] == "commentText: must be a string"
    assert problems["8"] == "from.userId: field required"
    assert problems["9"] == "decision: must not be empty"
    assert problems["10"] == "documentId: Document does not exist."
    assert problems["11"] == "organizationId: Organization does not exist."
    assert problems["12"] == "annotationId: is a thread of another document"
    assert problems["13"].startswith("location.id: must be at most 512 bytes")
    assert "NUL" in problems["14"]
    assert problems["15"] == "longer than 4194304 bytes"


def test_large_and_compressed_files_are_imported_in_batches(importer: Importer, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for number in range(2500):
            file.write(json.dumps(PLACE | RECORDS[7] | {"id": f"a{number}", "timestamp": number}) + "\n")

    assert importer(path, create_missing=True) == {"activity": 2500}

    assert importer.batches == [1000, 1000, 500]
    cut_off = tmp_path / "cut.jsonl.gz"
    cut_off.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ImportFailedError, match="damaged or cut off"):
        importer(cut_off)


def test_an_error_of_the_output_is_not_reported_as_one_of_the_file(importer: Importer, tmp_path: Path) -> None:
    class ClosedOutput(list[int]):
        def append(self, _: int) -> None:
            raise BrokenPipeError

    importer.batches = ClosedOutput()
    with pytest.raises(BrokenPipeError):
        importer(write_lines(tmp_path / "data.jsonl", RECORDS), create_missing=True)


def test_the_api_key_must_exist(importer: Importer, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "data.jsonl", RECORDS)

    with pytest.raises(ImportFailedError, match="there is no API key x"):
        importer(path, api_key="x")
    importer(path, create_missing=True)

    other = importer.world.tenant()
    assert everything(other)[0] == []
    assert not any(everything(other)[1].values())
