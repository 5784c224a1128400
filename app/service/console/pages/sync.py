"""The page that starts a sync or a preview: its scope, its options, and a forecast from the last preview."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from flask import Response, request
from sqlalchemy import Connection
from werkzeug.exceptions import Forbidden

from app.access.browse.lookup import find
from app.access.browse.sizes import ALL_ORGANIZATIONS, load_counts
from app.access.records import Document, Folder, Grant, Membership, Organization, Record, User
from app.access.revisions import current_revision
from app.access.search import search_exactly
from app.access.source_states import source_states
from app.directory.source import Verdict
from app.foundation.audit import AuditAction
from app.foundation.ids import MAX_ID_BYTES
from app.service.console.console import Console
from app.service.console.names import read_names
from app.service.console.run_changes import KindRow, kind_rows
from app.service.console.run_reads import unread_sources
from app.service.console.runs import enqueue, may_be_applied, plan_problem, reason_error
from app.service.console.settings import Role
from app.service.console.urls import query
from app.service.console.views import VIEWS
from app.sync.ledger.ledger import ledger_in_use
from app.sync.plan.affected_users import AffectedUsers, affected_users
from app.sync.plan.selection import Selection
from app.sync.runs.audit import requested_action
from app.sync.runs.context import unknown_ids
from app.sync.runs.history import recent_runs
from app.sync.runs.run import Run, RunRequest, RunStatus
from app.sync.runs.status import last_ended

_MAX_IDS = 1000
_PREVIEWS_READ = 20
_IDS_WITH_NAMES = 100
"""The ids of a selection that have names on the page."""
_UNREAD = {Verdict.FAILED.value, Verdict.PARTIAL.value}
_FIELDS = ("organizations", "users", "organization", "user", "verify", "deletes", "preview", "reason")


@dataclass(frozen=True, slots=True)
class _Form:
    """A form: its fields as they were sent, the selected ids, and the errors in the fields."""

    values: Mapping[str, str]
    organizations: tuple[str, ...]
    users: tuple[str, ...]
    errors: dict[str, str]
    """Field → its error."""


class _FieldError(Exception):
    """The value of a field is not valid. The text is for the operator."""


@VIEWS.get("sync", Role.APPROVER)
def sync(console: Console) -> Response:
    form = _parse_form(query("preview", "verify", "organizations", "users", "reason"))
    return _show(console, form, status=200)


@VIEWS.post("sync", Role.APPROVER, kept=("preview", "verify", "organizations", "users", "reason"))
def start(console: Console) -> Response:
    """Starts the run. An organization or user that was typed, but not added, is added first, and confirmed again."""
    values = {name: request.form.get(name, "") for name in _FIELDS}
    if request.form.get("go") == "preview":
        values["preview"] = "1"
    form = _parse_form(values, request.form.get("remove", ""))
    _require_admin_for_deletes(console, form)
    typed = [name for name in ("organization", "user") if form.values[name].strip()]
    if typed or request.form.get("remove") or request.form.get("narrow"):
        if not form.errors:
            form = _add_typed(console, form)
        return _show(console, form, status=400 if form.errors else 200)
    if errors := form.errors | _reason_errors(form.values):
        return _show(console, replace(form, errors=errors), status=400)
    return _enqueue(console, form)


def _parse_form(sent: Mapping[str, str], removed: str = "") -> _Form:
    """The form that was sent. ``removed``: the kind and the id that the operator removed from the selection."""
    values = dict.fromkeys(_FIELDS, "") | dict(sent)
    errors: dict[str, str] = {}
    selected: dict[str, tuple[str, ...]] = {}
    for kind in ("organization", "user"):
        ids = dict.fromkeys(line.strip() for line in values[f"{kind}s"].splitlines() if line.strip())
        if len(ids) > _MAX_IDS:
            errors[kind] = f"Choose at most {_MAX_IDS:,}, or none for everything."
        elif not all(map(_is_id, ids)):
            errors[kind] = f"Ids have at most {MAX_ID_BYTES} bytes of text."
        selected[kind] = tuple(item_id for item_id in ids if removed != f"{kind} {item_id}")
    return _Form(values, selected["organization"], selected["user"], errors)


def _is_id(text: str) -> bool:
    return "\0" not in text and len(text.encode("utf-8", "replace")) <= MAX_ID_BYTES


def _require_admin_for_deletes(console: Console, form: _Form) -> None:
    operator = console.operator
    if form.values["deletes"] and not operator.may(Role.ADMIN):
        console.gate.audit_refusal(operator.actor, AuditAction.SYNC, "deletes beyond the limits need the role admin")
        raise Forbidden("lifting the limits of deletes needs the role admin")


def _add_typed(console: Console, form: _Form) -> _Form:
    """The form with the typed organization and user in its selection, or with the errors in them."""
    values, errors = dict(form.values), dict(form.errors)
    added: dict[str, tuple[str, ...]] = {"organization": (), "user": ()}
    selected = {*form.organizations, *form.users}
    with console.reading() as connection:
        for kind, record in (("organization", Organization), ("user", User)):
            if not (text := values[kind].strip()):
                continue
            try:
                item_id = _resolve_id(connection, record, text)
            except _FieldError as error:
                errors[kind] = str(error)
                continue
            values[kind] = ""
            if item_id not in selected:
                added[kind] = (item_id,)
                selected.add(item_id)
    return _Form(values, form.organizations + added["organization"], form.users + added["user"], errors)


def _resolve_id(connection: Connection, record: type[Record], text: str) -> str:
    """The id of the record with this id, name or address. Raises ``_FieldError`` if it is not one."""
    if find(connection, record, text) is not None:
        return text
    matches = search_exactly(connection, text, record.kind)
    if len(matches) > 1:
        raise _FieldError(f"Several {record.kind}s have this name: enter an id, such as {matches[0].item_id}.")
    if matches:
        return matches[0].item_id
    if not _is_in_ledger(connection, record.kind, text):
        raise _FieldError(f"There is no such {record.kind}.")
    return text


def _is_in_ledger(connection: Connection, kind: str, item_id: str) -> bool:
    """Whether the backend has something of a record that the directory no longer contains."""
    ledger_id = ledger_in_use(connection)
    selection = Selection.of(**{f"{kind}_ids": (item_id,)})
    return _is_id(item_id) and ledger_id is not None and unknown_ids(connection, ledger_id, selection) is None


def _reason_errors(values: Mapping[str, str]) -> dict[str, str]:
    if values["deletes"] and not values["preview"] and not values["reason"].strip():
        return {"reason": "Enter a reason for lifting the limits, for the audit log."}
    error = reason_error(values["reason"])
    return {"reason": error} if error else {}


def _enqueue(console: Console, form: _Form) -> Response:
    values = form.values
    run_request = RunRequest(
        trigger="console",
        organization_ids=form.organizations,
        user_ids=form.users,
        dry_run=bool(values["preview"]),
        verify=bool(values["verify"]),
        allow_deletes=bool(values["deletes"]),
        asked_by=console.operator.asked_by,
        asked_reason=values["reason"].strip() or None,
    )
    return enqueue(console, run_request, requested_action(run_request))


class Forecast(NamedTuple):
    """What is known about a sync before it reads the sources."""

    sizes: dict[str, int]
    """Kind → the number of records in the scope. It is empty for a scope of users."""
    last: Run | None
    """The last full run."""
    revision: int
    preview: Run | None
    """The latest preview of the same scope since the last run."""
    outdated: Run | None
    """The latest preview of the same scope, if the last run came after it."""
    changes: Sequence[KindRow]
    """The changes of the preview by kind."""
    effects: Mapping[str, AffectedUsers]
    """Effect → the users whose access the preview changes, and the resources."""
    unread: str
    """The number of sources that it could not read completely, in words."""


def _forecast(connection: Connection, form: _Form) -> Forecast:
    counts = load_counts(connection, form.organizations or [ALL_ORGANIZATIONS]).values()
    kinds = (Organization.kind, Membership.kind, Folder.kind, Document.kind, Grant.kind)
    last = last_ended(connection)
    previews = recent_runs(connection, _PREVIEWS_READ, kind="preview", statuses=(RunStatus.DONE,))
    selection = Selection.of(form.organizations, form.users)
    preview = next((run for run in previews if run.selection == selection and "whatIf" not in run.report), None)
    outdated = None
    if preview is not None and last is not None and preview.requested_at < last.requested_at:
        preview, outdated = None, preview
    plan_id = None if preview is None else preview.plan_id
    return Forecast(
        sizes={} if form.users else {kind: sum(row.get(kind, 0) for row in counts) for kind in kinds},
        last=last,
        revision=current_revision(connection),
        preview=preview,
        outdated=outdated,
        changes=[] if preview is None else kind_rows(preview),
        effects={} if plan_id is None else affected_users(connection, plan_id).total,
        unread="" if preview is None else unread_sources(preview).short,
    )


def _show(console: Console, form: _Form, *, status: int) -> Response:
    with console.reading() as connection:
        forecast = _forecast(connection, form) if not form.errors else None
        unread = [state for state in source_states(connection) if state.is_configured and state.last_verdict in _UNREAD]
        mentions = [("organization", "", each) for each in form.organizations[:_IDS_WITH_NAMES]]
        mentions += [("user", "", each) for each in form.users[:_IDS_WITH_NAMES]]
        names = read_names(connection, mentions)
    preview = None if forecast is None or form.values["preview"] else forecast.preview
    return console.show(
        "sync.html",
        current="runs",
        form=form.values,
        errors=form.errors,
        organizations=form.organizations,
        users=form.users,
        with_names=_IDS_WITH_NAMES,
        names=names,
        unknown=[mention for mention in mentions if not names.has_record(*mention)],
        forecast=forecast,
        preview_applies=preview is not None and may_be_applied(preview) and not plan_problem(console, preview, None),
        unread=unread,
        status=status,
    )
