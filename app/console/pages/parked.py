"""Parked items: what was given up after failures, and what rests between two tries."""

import json

from flask import Blueprint, Response, request
from werkzeug.exceptions import BadRequest

from app.clock import from_epoch_ms
from app.console.console import PAGE_ROWS, Console, one_of, query, route_of
from app.console.pages.running import enqueue, retry_request
from app.console.settings import Role
from app.ledger.failures import Failing, Failure, failing_now, failures_page
from app.ledger.ledger import ledger_in_use
from app.store.sync_tables import ITEM_KINDS

_KEY_PARTS = 5


def install(blueprint: Blueprint, console: Console) -> None:
    """``/parked`` and ``/retry``."""

    @blueprint.get(route_of("parked"))
    @console.gate.page(Role.VIEWER)
    def parked() -> Response:
        given = query("kind", "state", "after")
        kind = one_of(given["kind"], ITEM_KINDS, "kind")
        state = one_of(given["state"], ("parked", "waiting"), "state") or "parked"
        after = _key(given["after"])
        counted: list[Failing] = []
        found: list[Failure] = []
        with console.reading() as connection:
            ledger_id = ledger_in_use(connection)
            if ledger_id is not None:
                counted = failing_now(connection, ledger_id)
                found = failures_page(
                    connection,
                    ledger_id,
                    parked=state == "parked",
                    kind=kind or None,
                    after=after,
                    limit=PAGE_ROWS + 1,
                )
        numbers = {
            "parked": sum(one.items for one in counted if one.parked),
            "waiting": sum(one.items for one in counted if not one.parked),
        }
        return console.show(
            "parked.html",
            current="parked",
            rows=[(failure, from_epoch_ms(failure.retry_at)) for failure in found[:PAGE_ROWS]],
            next_after=_shown_key(found[PAGE_ROWS - 1]) if len(found) > PAGE_ROWS else "",
            filters={"kind": kind, "state": state},
            counted=[(one, None if one.since is None else from_epoch_ms(one.since)) for one in counted],
            kinds=ITEM_KINDS,
            numbers=numbers,
        )

    @blueprint.post(route_of("retry"))
    def retry() -> Response:
        principal = console.gate.required(Role.APPROVER)
        kind = one_of(request.form.get("kind", ""), ITEM_KINDS, "kind")
        return enqueue(console, principal, retry_request(principal, (kind,) if kind else ()), "retry asked for")


def _shown_key(failure: Failure) -> str:
    return json.dumps(
        [failure.kind, failure.organization_id, failure.container_id, failure.item_id, failure.deleting],
        ensure_ascii=False,
    )


def _key(shown: str) -> tuple[str, str, str, str, bool] | None:
    if not shown:
        return None
    try:
        parts = json.loads(shown)
    except (ValueError, RecursionError):
        parts = None
    if (
        not isinstance(parts, list)
        or len(parts) != _KEY_PARTS
        or not all(isinstance(part, str) and "\0" not in part for part in parts[:-1])
        or not isinstance(parts[-1], bool)
        or any(0xD800 <= ord(character) < 0xE000 for part in parts[:-1] for character in part)
    ):
        raise BadRequest("after is not a place in this list; begin at its first page")
    kind, organization_id, container_id, item_id, deleting = parts
    return kind, organization_id, container_id, item_id, deleting
