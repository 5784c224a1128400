"""The runs: all of them, one with its stages and items, and one item."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flask import Blueprint, Response, request
from werkzeug.exceptions import NotFound

from app.admin.resync import ITEM_STATUSES
from app.console.console import PAGE_ROWS, Console, one_of, query, route_of
from app.console.settings import Role
from app.plan.listing import PlannedChange, item_history, item_payload, list_changes
from app.runs.run import RUNNING, Run, RunNotFoundError, RunStatus
from app.store.sync_tables import ITEM_KINDS

STATUSES = tuple(status.value for status in RunStatus)
TRIGGERS = ("schedule", "verify_schedule", "resync", "console", "command", "continuation", "changes")
_ACTIONS = ("add", "update", "delete")
_RUN_ID = re.compile(r"[!-~]{1,200}")
_ORDINAL = re.compile(r"[0-9]{1,18}")
_HISTORY = 20


def install(blueprint: Blueprint, console: Console) -> None:
    """``/runs``, ``/run`` and ``/item``."""

    @blueprint.get(route_of("runs"))
    @console.gate.page(Role.VIEWER)
    def runs() -> Response:
        given = query("status", "trigger", "before")
        status = one_of(given["status"], STATUSES, "status")
        trigger = one_of(given["trigger"], TRIGGERS, "trigger")
        before = given["before"]
        if before and not _RUN_ID.fullmatch(before):
            raise NotFound
        found = console.parts.runs.recent(
            PAGE_ROWS + 1, before or None, statuses=(status,) if status else (), trigger=trigger or None
        )
        return console.show(
            "runs.html",
            current="runs",
            runs=found[:PAGE_ROWS],
            next_before=found[PAGE_ROWS - 1].run_id if len(found) > PAGE_ROWS else "",
            filters={"status": status, "trigger": trigger},
            statuses=STATUSES,
            triggers=TRIGGERS,
            is_first=not before,
        )

    @blueprint.get(route_of("run"))
    @console.gate.page(Role.VIEWER)
    def run() -> Response:
        given = query("id", "status", "kind", "after")
        found = find_run(console, given["id"])
        status = one_of(given["status"], ITEM_STATUSES, "status")
        kind = one_of(given["kind"], ITEM_KINDS, "kind")
        after = ordinal_of(given["after"])
        items = _items(console, found, status=status or None, kind=kind or None, after=after, limit=PAGE_ROWS + 1)
        context: dict[str, Any] = {
            "run": found,
            "is_live": found.is_running or found.status is RunStatus.QUEUED,
            "stages": stages_of(found, console.parts.clock()),
            "progress": progress_of(found),
            "kinds": kind_rows(found),
            "holds": _holds(found),
        }
        if request.headers.get("x-fragment") == "1":
            return console.bare("run_live.html", ended=not context["is_live"], **context)
        return console.show(
            "run.html",
            current="runs",
            items=items[:PAGE_ROWS],
            next_after=items[PAGE_ROWS - 1].ordinal if len(items) > PAGE_ROWS else None,
            filters={"status": status, "kind": kind},
            item_kinds=ITEM_KINDS,
            counts={name: found.total(name) for name in ITEM_STATUSES},
            total=found.total("planned"),
            problems=_problems(found),
            **context,
        )

    @blueprint.get(route_of("item"))
    @console.gate.page(Role.VIEWER)
    def item() -> Response:
        given = query("run", "ordinal")
        found = find_run(console, given["run"])
        ordinal = ordinal_of(given["ordinal"])
        page = [] if ordinal is None else _items(console, found, after=ordinal - 1, limit=1)
        if not page or page[0].ordinal != ordinal or found.plan_id is None:
            raise NotFound
        change = page[0]
        with console.reading() as connection:
            history = item_history(connection, change, limit=_HISTORY)
            payload = item_payload(connection, found.plan_id, change.ordinal)
        return console.show(
            "item.html",
            current="runs",
            run=found,
            item=change,
            history=history,
            payload=payload,
            where=where_of(change),
        )


def _items(
    console: Console,
    run: Run,
    *,
    status: str | None = None,
    kind: str | None = None,
    after: int | None = None,
    limit: int,
) -> list[PlannedChange]:
    if run.plan_id is None:
        return []
    with console.reading() as connection:
        return list_changes(connection, run.plan_id, status=status, kind=kind, after=after, limit=limit)


def find_run(console: Console, run_id: str) -> Run:
    """The run of this id. Raises ``RunNotFoundError``, also for what is no id of ours."""
    if not _RUN_ID.fullmatch(run_id):
        raise RunNotFoundError("there is no such run")
    return console.parts.runs.get(run_id)


def ordinal_of(value: str) -> int | None:
    """The number of an item; None where none is given. Raises ``NotFound`` for what is none."""
    if not value:
        return None
    if not _ORDINAL.fullmatch(value):
        raise NotFound
    return int(value)


def where_of(change: PlannedChange) -> str:
    """In what the item is: ``northwind / engineering``."""
    return " / ".join(part for part in (change.organization_id, change.container_id) if part and part != change.item_id)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a run: its name, state and the moment at which it began, as far as that is known."""

    name: str
    state: str
    at: datetime | None
    says: str
    is_now: bool = False


def stages_of(run: Run, now: datetime) -> list[Stage]:
    """From the queue to the end, as far as the run has come."""
    order = [RunStatus.QUEUED, RunStatus.READING, RunStatus.PLANNING, RunStatus.APPLYING]
    names = {
        RunStatus.QUEUED: "Queued",
        RunStatus.READING: "Read directory",
        RunStatus.PLANNING: "Planned",
        RunStatus.APPLYING: "Applied",
    }
    at = RunStatus.PLANNING if run.status is RunStatus.VERIFYING else run.status
    reached = order.index(at) if at in order else len(order)
    stages = [
        Stage(
            names[status], run.status.value if number == reached else "done", _when(run, status), "", number == reached
        )
        for number, status in enumerate(order)
        if number <= reached and not (run.dry_run and status is RunStatus.APPLYING)
    ]
    if run.status not in RUNNING and run.status is not RunStatus.QUEUED:
        took = None if run.finished_at is None or run.started_at is None else run.finished_at - run.started_at
        says = "" if took is None else f"after {took.total_seconds():.1f} s"
        stages.append(Stage(run.status.value.capitalize(), run.status.value, run.finished_at or now, says, True))
    return stages


def _when(run: Run, status: RunStatus) -> datetime | None:
    return {RunStatus.QUEUED: run.requested_at, RunStatus.READING: run.started_at}.get(status)


def progress_of(run: Run) -> tuple[int, int]:
    """How many items are settled, of how many."""
    total = run.total("planned")
    settled = sum(run.total(status) for status in ITEM_STATUSES if status != "planned")
    return settled, total


@dataclass(frozen=True, slots=True)
class KindRow:
    """What a run does with one kind."""

    kind: str
    planned: Sequence[int]
    """How many adds, updates and deletes."""
    outcomes: Sequence[tuple[str, int]]


def kind_rows(run: Run) -> list[KindRow]:
    """kind × action, and what became of it."""
    rows = []
    for kind in ITEM_KINDS:
        actions = run.counts.get(kind)
        if not actions:
            continue
        outcomes = {
            status: sum(numbers.get(status, 0) for numbers in actions.values())
            for status in ITEM_STATUSES
            if status != "planned"
        }
        rows.append(
            KindRow(
                kind,
                [actions.get(action, {}).get("planned", 0) for action in _ACTIONS],
                [(status, number) for status, number in outcomes.items() if number],
            )
        )
    return rows


def _holds(run: Run) -> Sequence[object]:
    found = run.report.get("held")
    return found if isinstance(found, list) else []


def _problems(run: Run) -> Sequence[object]:
    found = run.report.get("problems")
    return found if isinstance(found, list) else []
