"""The page that confirms a sync or a preview: what it touches, as far as that is known before the sources are read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flask import Response, request
from sqlalchemy import Connection
from werkzeug.exceptions import Forbidden

from app.access.browse.lookup import find
from app.access.browse.sizes import ALL_ORGANIZATIONS, counts_of
from app.access.records import Document, Folder, Grant, Membership, Organization, Record, User
from app.access.revisions import current_revision
from app.access.search import search_exactly
from app.service.console.console import Console, query
from app.service.console.names import read_names
from app.service.console.pages.run_actions import enqueue, reason_problem
from app.service.console.pages.run_summary import kind_rows, unread_sources
from app.service.console.settings import Role
from app.service.console.views import VIEWS
from app.sync.ledger.ledger import ledger_in_use
from app.sync.plan.selection import Selection
from app.sync.runs.context import unknown_ids
from app.sync.runs.history import recent_runs
from app.sync.runs.run import Run, RunRequest, RunStatus
from app.sync.runs.status import last_ended

_MAX_IDS = 1000
_MAX_ID_BYTES = 512
_PREVIEWS_READ = 20
_NAMED = 100
"""The ids of a selection that have names on the page."""
_FIELDS = ("organizations", "users", "organization", "user", "verify", "deletes", "preview", "reason")


@dataclass
class _Form:
    """The fields of the form, and what is wrong with them."""

    values: dict[str, str]
    wrong: dict[str, str] = field(default_factory=dict)
    organizations: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.values = dict.fromkeys(_FIELDS, "") | self.values
        self.organizations = self._ids("organization")
        self.users = self._ids("user")

    def _ids(self, name: str) -> tuple[str, ...]:
        """The ids of a hidden field, one on each line."""
        lines = self.values[f"{name}s"].splitlines()
        ids = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
        if len(ids) > _MAX_IDS:
            self.wrong[name] = f"Choose at most {_MAX_IDS:,}, or none for everything."
        elif any("\0" in item or len(item.encode("utf-8", "replace")) > _MAX_ID_BYTES for item in ids):
            self.wrong[name] = f"Ids have at most {_MAX_ID_BYTES} bytes of text."
        return ids


@VIEWS.get("sync", Role.APPROVER)
def sync(console: Console) -> Response:
    return _show(console, _Form(query("preview", "verify", "organizations", "users", "reason")))


@VIEWS.post("sync", Role.APPROVER)
def start(console: Console) -> Response:
    """Starts the run. What was typed into a field but not yet added is added first, and confirmed again."""
    operator = console.operator
    form = _Form({name: request.form.get(name, "") for name in _FIELDS})
    values, wrong = form.values, form.wrong
    if request.form.get("go") == "preview":
        values["preview"] = "1"
    if values["deletes"] and not operator.may(Role.ADMIN):
        console.gate.audit_refusal(operator.actor, "sync", "deletes beyond the limits need the role admin")
        raise Forbidden("lifting the limits of deletes needs the role admin")
    removed = request.form.get("remove", "")
    form.organizations = tuple(each for each in form.organizations if removed != f"organization {each}")
    form.users = tuple(each for each in form.users if removed != f"user {each}")
    narrows = bool(removed or request.form.get("narrow") or values["organization"].strip() or values["user"].strip())
    if narrows and not wrong:
        with console.reading() as connection:
            form.organizations += _found(connection, form, "organization", Organization)
            form.users += _found(connection, form, "user", User)
    if narrows:
        return _show(console, form, status=400 if wrong else 200)
    if problem := reason_problem(values["reason"]):
        wrong["reason"] = problem
    if values["deletes"] and not values["preview"] and not values["reason"].strip():
        wrong["reason"] = "Enter a reason for lifting the limits, for the audit log."
    if wrong:
        return _show(console, form, status=400)
    wanted = RunRequest(
        trigger="console",
        organization_ids=form.organizations,
        user_ids=form.users,
        dry_run=bool(values["preview"]),
        verify=bool(values["verify"]),
        allow_deletes=bool(values["deletes"]),
        asked_by=operator.asked_by,
        asked_reason=values["reason"].strip() or None,
    )
    return enqueue(console, operator, wanted, "preview asked for" if values["preview"] else "sync asked for")


def _found(connection: Connection, form: _Form, name: str, record: type[Record]) -> tuple[str, ...]:
    """The id of the record with the typed id, name or address. None, with a message in the form, if it is not one."""
    typed = form.values[name].strip()
    if not typed:
        return ()
    found = typed if find(connection, record, typed) is not None else ""
    if not found:
        matches = search_exactly(connection, typed, record.kind)
        if len(matches) > 1:
            form.wrong[name] = f"Several {name}s have this name: enter an id, such as {matches[0].item_id}."
            return ()
        found = matches[0].item_id if matches else typed if _is_in_ledger(connection, name, typed) else ""
    if not found:
        form.wrong[name] = f"There is no such {name}."
        return ()
    form.values[name] = ""
    return () if found in (*form.organizations, *form.users) else (found,)


def _is_in_ledger(connection: Connection, name: str, item_id: str) -> bool:
    """Whether the backend has something of a record that the directory no longer contains."""
    ledger_id = ledger_in_use(connection)
    selection = Selection.of(**{f"{name}_ids": (item_id,)})
    is_storable = "\0" not in item_id and len(item_id.encode("utf-8", "replace")) <= _MAX_ID_BYTES
    return is_storable and ledger_id is not None and unknown_ids(connection, ledger_id, selection) is None


class Known(NamedTuple):
    """What is known of a sync before it reads the sources."""

    sizes: dict[str, int]
    """Kind → the number of records in the scope; of users: none."""
    last: Run | None
    """The last full run."""
    revision: int
    preview: Run | None
    """The latest preview of the same scope since the last run."""
    changes: Sequence[Any]
    """The changes of the preview by kind."""
    lost: int
    """Pairs of user and resource that it would take access from."""
    gained: int
    unread: str
    """The number of sources that it could not read completely, in words."""


def _known(connection: Connection, form: _Form) -> Known:
    counts = counts_of(connection, form.organizations or [ALL_ORGANIZATIONS]).values()
    kinds = (Organization.kind, Membership.kind, Folder.kind, Document.kind, Grant.kind)
    last = last_ended(connection)
    previews = recent_runs(connection, _PREVIEWS_READ, kind="preview", statuses=(RunStatus.DONE,))
    selection = Selection.of(form.organizations, form.users)
    preview = next((run for run in previews if run.selection == selection and "whatIf" not in run.report), None)
    if preview is not None and last is not None and preview.requested_at < last.requested_at:
        preview = None
    impact = {} if preview is None else preview.report.get("impact", {})
    return Known(
        sizes={} if form.users else {kind: sum(row.get(kind, 0) for row in counts) for kind in kinds},
        last=last,
        revision=current_revision(connection),
        preview=preview,
        changes=[] if preview is None else kind_rows(preview),
        lost=impact.get("lose", 0),
        gained=impact.get("gain", 0),
        unread="" if preview is None else unread_sources(preview).short,
    )


def _show(console: Console, form: _Form, *, status: int = 200) -> Response:
    with console.reading() as connection:
        known = _known(connection, form) if not form.wrong else None
        mentions = [("organization", "", each) for each in form.organizations[:_NAMED]]
        names = read_names(connection, [*mentions, *(("user", "", each) for each in form.users[:_NAMED])])
    return console.show(
        "sync.html",
        current="runs",
        form=form.values,
        wrong=form.wrong,
        organizations=form.organizations,
        users=form.users,
        named=_NAMED,
        names=names,
        known=known,
        status=status,
    )
