"""Previews of uploaded files, executed by a worker: they change nothing, and their files are deleted."""

import gzip
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import Connection, text

from app.access.revisions import current_revision
from app.client.client import BackendClient
from app.commands.bootstrap.application import Application, application
from app.commands.bootstrap.worker import worker_parts
from app.commands.frame import Invocation
from app.foundation.database.engine import reading, writing
from app.monitoring.metrics import Metrics
from app.sync.runs.files import MAX_FILES, TooManyFilesError, UploadedFile, store_file
from app.sync.runs.run import Run, RunRequest, RunStatus
from tests.commands.conftest import DIRECTORY, Usher

WITHOUT_ADA = DIRECTORY.replace("  - {organizationId: acme, userId: ada}\n", "")


@pytest.fixture
def parts(usher_with_backend: Usher, folder: Path) -> Iterator[Application]:
    """After a sync."""
    assert usher_with_backend("sync").exit_code == 0
    with application(Invocation(config=folder / "usher.yaml").settings(), needs_backend=True) as made:
        yield made


def _queued(parts: Application, name: str, content: str | bytes, source: str = "", *, verify: bool = False) -> Run:
    file = UploadedFile(name, source, content.encode() if isinstance(content, str) else content)

    def store(connection: Connection, run: Run) -> None:
        store_file(connection, run.run_id, file)

    request = RunRequest(trigger="console", dry_run=True, alone=True, verify=verify)
    return parts.runs.enqueue(request, audit_hook=store)[0]


def _previewed(parts: Application, name: str, content: str | bytes, source: str = "", *, verify: bool = False) -> Run:
    run = _queued(parts, name, content, source, verify=verify)
    worker = worker_parts(parts, stop=Event()).worker
    while not worker.tick():
        pass
    return parts.runs.get(run.run_id)


def _stored(parts: Application) -> tuple[int, int]:
    """The number of stored files, and the revision."""
    with reading(parts.engine) as connection:
        files = connection.execute(text("SELECT COUNT(*) FROM run_file")).scalar_one()
        return int(files), current_revision(connection)


@pytest.mark.parametrize("source", ["", "directory.yaml"])
def test_a_worker_plans_the_uploaded_file_and_changes_nothing(
    parts: Application, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = _stored(parts)
    for name, content in (("next.yaml", WITHOUT_ADA), ("next.yaml.gz", gzip.compress(WITHOUT_ADA.encode()))):
        run = _previewed(parts, name, content, source)
        assert (run.status, run.report["whatIf"]) == (RunStatus.DONE, [name])
        assert [(change.action, change.item_id) for change in parts.runs.changes(run.run_id)] == [("delete", "ada")]
        assert run.report["impact"]["lose"] > 0
        assert _stored(parts) == before
        assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.yaml", "users:\n  - {userId: 'x\n", "a.yaml: line 3: not YAML: found unexpected end of stream"),
        ("a.json", "{", "a.json: line 1: not JSON: Expecting property name enclosed in double quotes"),
        ("a.yaml", "organisations: []\n", "a.yaml: 'organisations' is not one of the lists organizations, "),
        ("a.jsonl", '{"kind": "user"', "a.jsonl:1: the file ends in the middle of a line"),
        ("a.jsonl.gz", b"no archive", "a.jsonl.gz: Not a gzipped file"),
    ],
)
def test_a_malformed_file_ends_the_run_with_the_line(
    parts: Application, name: str, content: str | bytes, error: str
) -> None:
    before = _stored(parts)
    run = _previewed(parts, name, content)
    assert run.status is RunStatus.FAILED
    assert (run.error or "").startswith(error)
    assert "/" not in (run.error or "")
    assert _stored(parts) == before


def test_an_unknown_source_ends_the_run(parts: Application) -> None:
    run = _previewed(parts, "next.yaml", WITHOUT_ADA, "nothing")
    assert (run.status, run.error) == (RunStatus.FAILED, "nothing is not one of the sources directory.yaml")
    assert _stored(parts)[0] == 0


@pytest.mark.parametrize("name", [f"{'漢' * 95}.yaml", "Next Week.YAML"], ids=["long", "capitals"])
def test_the_name_of_the_file_is_not_used_on_disk(parts: Application, name: str) -> None:
    run = _previewed(parts, name, WITHOUT_ADA)
    assert (run.status, run.error, run.report["whatIf"]) == (RunStatus.DONE, None, [name])


def test_a_worker_without_a_temporary_folder_ends_the_preview_and_goes_on(
    parts: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    preview = _queued(parts, "next.yaml", WITHOUT_ADA)
    sync, _ = parts.runs.enqueue(RunRequest(trigger="resync"))
    assert worker_parts(parts, stop=Event()).worker.tick() == 2
    ended = parts.runs.get(preview.run_id)
    error = "the worker cannot write next.yaml to its temporary folder: No such file or directory"
    assert (ended.status, ended.error, ended.finished_at is None) == (RunStatus.FAILED, error, False)
    assert parts.runs.get(sync.run_id).status is RunStatus.DONE
    assert _stored(parts)[0] == 0


def test_the_calls_of_a_preview_are_counted_and_its_client_is_closed(
    parts: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    closed: list[BackendClient] = []
    close = BackendClient.close

    def close_and_note(client: BackendClient) -> None:
        close(client)
        closed.append(client)

    monkeypatch.setattr(Metrics, "call_ended", lambda _, record: counted.append(record.operation))
    monkeypatch.setattr(BackendClient, "close", close_and_note)
    assert _previewed(parts, "next.yaml", WITHOUT_ADA, verify=True).status is RunStatus.DONE
    assert counted
    assert len(closed) == 1


def test_files_of_ended_runs_are_deleted(parts: Application) -> None:
    """A worker of an older version ends a run without deleting its file."""
    for _ in range(MAX_FILES):
        parts.runs.cancel(_queued(parts, "next.yaml", WITHOUT_ADA).run_id)
    left = text("INSERT INTO run_file (run_id, name, source, content) SELECT run_id, 'a.yaml', '', :content FROM run")
    for delete_left in (
        lambda: parts.runs.prune(timedelta(days=30)),
        lambda: _queued(parts, "next.yaml", WITHOUT_ADA),
    ):
        with writing(parts.engine) as connection:
            connection.execute(text("DELETE FROM run_file"))
            connection.execute(left, {"content": b"x"})
        assert _stored(parts)[0] > MAX_FILES
        delete_left()
        assert _stored(parts)[0] <= 1


def test_prune_keeps_the_file_of_a_queued_preview(parts: Application) -> None:
    _queued(parts, "next.yaml", WITHOUT_ADA)
    parts.runs.prune(timedelta(0))
    assert _stored(parts)[0] == 1


def test_a_cancelled_preview_deletes_its_file_and_too_many_are_refused(parts: Application) -> None:
    runs = [_queued(parts, "next.yaml", WITHOUT_ADA) for _ in range(MAX_FILES)]
    assert _stored(parts)[0] == MAX_FILES
    with pytest.raises(TooManyFilesError):
        _queued(parts, "next.yaml", WITHOUT_ADA)
    for run in runs:
        parts.runs.cancel(run.run_id)
    assert _stored(parts)[0] == 0
