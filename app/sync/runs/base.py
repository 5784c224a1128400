"""The base of a run's plan: the last plan of everything and the plans since, so that only changes are planned.

The rules: ``app/sync/runs/README.md``, "Bases".

An engine keeps it in memory. Interrupted calls, and operations that the backend has again, leave unconfirmed items,
which plans of changes include.
"""

from dataclasses import dataclass

from sqlalchemy import Engine

from app.foundation.database.engine import reading
from app.sync.ledger.ledger import Ledger, read_ledger
from app.sync.runs.run import Run, RunStatus

REGULAR_ENDS = frozenset({RunStatus.DONE, RunStatus.PARTIAL, RunStatus.HELD})
"""The ends of runs after which the base is known."""

_MAX_PLANS = 500
"""After more plans of organizations or users, everything is planned."""


@dataclass(frozen=True, slots=True)
class Base:
    """The last plan of everything and the later ones."""

    plan_ids: tuple[str, ...] = ()
    """Empty: everything is planned."""
    ledger: Ledger | None = None
    """The ledger after the last of these plans."""


def plans_since(base: Base, run: Run, ledger: Ledger) -> tuple[str, ...]:
    """The plans since which the run plans only changes; empty: it plans everything. ``ledger``: as the run began."""
    if run.dry_run or run.plan_is_fixed or run.selection.user_ids or run.allow_deletes or run.retry:
        return ()
    # A ledger that was never verified is verified first. Otherwise it changes only with its revision.
    return () if ledger.needs_verify or ledger != base.ledger else base.plan_ids


def base_after(engine: Engine, base: Base, run: Run, plan_id: str | None, ledger_id: int | None) -> Base:
    """The base after a run that made this plan and ended regularly. Call it while no other process can synchronize."""
    if run.dry_run:
        return base
    if plan_id is None or ledger_id is None or run.plan_is_fixed:
        return Base()
    with reading(engine) as connection:
        ledger = read_ledger(connection, ledger_id)
    if run.selection.is_everything:
        return Base((plan_id,), ledger)
    # A verify may have found differences outside of the selection.
    if run.verify or not base.plan_ids or len(base.plan_ids) >= _MAX_PLANS:
        return Base()
    return Base((*base.plan_ids, plan_id), ledger)
