"""The page of what the backend was told of one thing: what it holds, and what runs had planned for it."""

from flask import Response
from werkzeug.exceptions import NotFound

from app.access.browse.things import may_be_stored
from app.foundation.clock import from_epoch_ms
from app.service.console.console import Console, one_of, query
from app.service.console.views import Views
from app.sync.ledger.holding import ItemIdentity, failures_of, holding_of
from app.sync.ledger.ledger import ledger_in_use
from app.sync.plan.detail import item_history
from app.sync.tables import ITEM_KINDS

_HISTORY = 50


VIEWS = Views()


@VIEWS.get("told")
def told(console: Console) -> Response:
    given = query("kind", "organization", "container", "item")
    kind = one_of(given["kind"], ITEM_KINDS, "kind")
    item = ItemIdentity(
        kind=kind,
        organization_id=given["organization"],
        container_id=given["container"],
        item_id=given["item"],
    )
    if not kind or not item.item_id or not may_be_stored(*given.values()):
        raise NotFound("Nothing was told of an item without kind or id, or of one whose id reads so")
    with console.reading() as connection:
        ledger_id = ledger_in_use(connection)
        holding = None if ledger_id is None else holding_of(connection, ledger_id, item)
        failures = [] if ledger_id is None else failures_of(connection, ledger_id, item)
        history = item_history(connection, item, limit=_HISTORY)
    return console.show(
        "told.html",
        current="browse",
        item=item,
        holding=holding,
        gone_at=None if holding is None or holding.gone_at is None else from_epoch_ms(holding.gone_at),
        failures=[(one, from_epoch_ms(one.retry_at)) for one in failures],
        history=history,
        keep_runs=console.parts.keep_runs,
    )
