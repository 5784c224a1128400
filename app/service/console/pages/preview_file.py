"""Previews an uploaded directory file in place of the sources. It changes nothing."""

from flask import Response, request
from sqlalchemy import Connection
from werkzeug.datastructures import FileStorage

from app.directory.file import ENDINGS
from app.service.console.console import Console, address, go_to, query
from app.service.console.pages.run_actions import reason_problem
from app.service.console.settings import Role
from app.service.console.views import VIEWS
from app.sync.runs.files import MAX_FILE_BYTES, TooManyFilesError, UploadedFile, plain_name, store_file
from app.sync.runs.run import Run, RunRequest

_FORM_BYTES = 64 * 1024
"""For the other fields of the form, and for what separates them."""


@VIEWS.get("preview_file", Role.APPROVER)
def preview_file(console: Console) -> Response:
    return _form(console, query("source", "reason"), {})


@VIEWS.post("preview_file", Role.APPROVER, max_bytes=MAX_FILE_BYTES + _FORM_BYTES)
def upload(console: Console) -> Response:
    operator = console.operator
    form = {name: request.form.get(name, "").strip() for name in ("source", "reason")}
    wrong: dict[str, str] = {}
    file = _read_file(request.files.get("file"), form["source"], wrong)
    if form["source"] and form["source"] not in console.parts.sources:
        wrong["source"] = "This source is not configured."
    if problem := reason_problem(form["reason"]):
        wrong["reason"] = problem
    if wrong:
        return _form(console, form, wrong, status=400)
    about = f"{file.name} instead of {f'source {file.source}' if file.source else 'all sources'}"
    wanted = RunRequest(
        trigger="console",
        dry_run=True,
        alone=True,
        asked_by=operator.asked_by,
        asked_reason=f"{about}: {form['reason']}" if form["reason"] else about,
    )
    audit = console.gate.audit_hook(operator.actor, "preview asked for", wanted.asked_reason)

    def store(connection: Connection, run: Run) -> None:
        store_file(connection, run.run_id, file)
        audit(connection, run)

    try:
        run, _ = console.parts.runs.enqueue(wanted, audit_hook=store)
    except TooManyFilesError as error:
        return _form(console, form, {"file": f"{str(error).capitalize()}."}, status=429)
    return go_to(address("run", id=run.run_id))


def _read_file(sent: FileStorage | None, source: str, wrong: dict[str, str]) -> UploadedFile:
    """The uploaded file. Adds what is wrong with it to ``wrong``."""
    content = b"" if sent is None else sent.stream.read(MAX_FILE_BYTES + 1)
    file = UploadedFile(plain_name((sent and sent.filename) or ""), source, content)
    if not file.name:
        wrong["file"] = "Choose a file."
    elif not file.ending:
        wrong["file"] = f"The name must end in {', '.join(ENDINGS)}, perhaps followed by .gz."
    elif not content:
        wrong["file"] = f"{file.name} is empty."
    elif len(content) > MAX_FILE_BYTES:
        limit = MAX_FILE_BYTES // 1024**2
        wrong["file"] = f"{file.name} is larger than {limit} MiB. Compress it with gzip."
    return file


def _form(console: Console, form: dict[str, str], wrong: dict[str, str], *, status: int = 200) -> Response:
    return console.show(
        "preview_file.html",
        current="runs",
        form=form,
        wrong=wrong,
        sources=console.parts.sources,
        endings=ENDINGS,
        max_mib=MAX_FILE_BYTES // 1024**2,
        status=status,
    )
