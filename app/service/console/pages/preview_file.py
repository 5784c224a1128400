"""The page that previews an uploaded directory file in place of one source or of all. It changes nothing."""

from collections.abc import Mapping

from flask import Response, request
from sqlalchemy import Connection

from app.directory.file import ENDINGS
from app.service.console.console import Console
from app.service.console.runs import reason_error
from app.service.console.settings import Role
from app.service.console.urls import address, go_to, query
from app.service.console.views import VIEWS
from app.sync.runs.audit import audited, requested_action
from app.sync.runs.files import MAX_FILE_BYTES, TooManyFilesError, UploadedFile, plain_name, store_file
from app.sync.runs.run import Run, RunRequest

_FORM_BYTES = 64 * 1024
"""For the other fields of the form, and for what separates them."""
_MAX_MIB = MAX_FILE_BYTES // 1024**2
_ALL = "*"
"""The choice of all sources. It is no default: for them, a file of one source deletes the records of the others."""


@VIEWS.get("preview_file", Role.APPROVER)
def preview_file(console: Console) -> Response:
    return _show(console, query("source", "reason"), {})


@VIEWS.post("preview_file", Role.APPROVER, max_bytes=MAX_FILE_BYTES + _FORM_BYTES)
def upload(console: Console) -> Response:
    form = {name: request.form.get(name, "").strip() for name in ("source", "reason")}
    sent = request.files.get("file")
    content = b"" if sent is None else sent.stream.read(MAX_FILE_BYTES + 1)
    source = "" if form["source"] == _ALL else form["source"]
    file = UploadedFile(plain_name((sent and sent.filename) or ""), source, content)
    errors = {
        "file": _file_error(file),
        "source": "" if source in {"", *console.parts.sources} else "This source is not configured.",
        "reason": reason_error(form["reason"]),
    }
    if not form["source"] and len(console.parts.sources) > 1:
        errors["source"] = "Choose what the file replaces."
    if any(errors.values()):
        return _show(console, form, errors, status=400)
    operator = console.operator
    about = f"{file.name} instead of {f'source {file.source}' if file.source else 'all sources'}"
    preview = RunRequest(
        trigger="console",
        dry_run=True,
        alone=True,
        asked_by=operator.asked_by,
        asked_reason=f"{about}: {form['reason']}" if form["reason"] else about,
    )
    audit = audited(console.gate.audit, operator.actor, requested_action(preview), preview.asked_reason)

    def store(connection: Connection, run: Run) -> None:
        store_file(connection, run.run_id, file)
        audit(connection, run)

    try:
        run, _ = console.parts.runs.enqueue(preview, audit_hook=store)
    except TooManyFilesError as error:
        return _show(console, form, {"file": f"{str(error).capitalize()}."}, status=429)
    return go_to(address("run", id=run.run_id))


def _file_error(file: UploadedFile) -> str:
    """The error in an uploaded file. It is empty if there is none."""
    if not file.name:
        return "Choose a file."
    if not file.ending:
        return f"The name must end in {', '.join(ENDINGS)}, perhaps followed by .gz."
    if not file.content:
        return f"{file.name} is empty."
    if len(file.content) > MAX_FILE_BYTES:
        return f"{file.name} is larger than {_MAX_MIB} MiB. Compress it with gzip."
    return ""


def _show(console: Console, form: Mapping[str, str], errors: Mapping[str, str], *, status: int = 200) -> Response:
    return console.show(
        "preview_file.html",
        current="runs",
        form=form,
        errors=errors,
        sources=console.parts.sources,
        everything=_ALL,
        endings=ENDINGS,
        max_mib=_MAX_MIB,
        status=status,
    )
