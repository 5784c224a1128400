"""The queue of runs. Identical requests share a queued run, and changes between two syncs get runs of their own."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from random import Random

from sqlalchemy import Connection, Row, func, insert, select

from app.access.pending import take_pending
from app.foundation.clock import epoch_ms
from app.foundation.database import statements
from app.foundation.database.engine import is_sqlite
from app.sync.runs.run import RUN, QueueFullError, Run, RunConflictError, RunRequest, RunStatus, row_of, run_from
from app.sync.runs.tables import RunKeyRow

MAX_QUEUED = 100
"""The maximum of queued runs from HTTP requests. Other runs are never refused."""

CHANGES = "changes"
"""The trigger of a run of the changes between two syncs. If it is narrowed, it reads no source."""

CONTINUATION = "continuation"
"""The trigger of a run that continues an interrupted one."""

MAX_TOUCHED = 1_000
"""The maximum of changed organizations or users for narrowed runs. With more, a full run is queued."""

_ENQUEUE_LOCK = 0x75736865725F71
"""The PostgreSQL advisory lock for enqueuing."""

KEY = RunKeyRow.__table__


def enqueue(connection: Connection, request: RunRequest, *, now: datetime, random: Random) -> tuple[Run, bool]:
    """``Runs.enqueue`` within a transaction, after ``lock_queue``."""
    content = _content(request)
    row = _of_key(connection, request.idempotency_key)
    if row is not None:
        if any(getattr(row, name) != value for name, value in content.items()):
            raise RunConflictError("the idempotency key was used for a different request")
        return run_from(row), False
    row = None if request.alone else _identical(connection, content)
    created = row is None
    if row is None:
        _refuse_too_many(connection, request)
        run_id = _new_id(now, random)
        connection.execute(
            insert(RUN).values(
                run_id=run_id,
                trigger=request.trigger,
                status=RunStatus.QUEUED.value,
                requested_at=epoch_ms(now),
                cancel_requested=False,
                counts="{}",
                calls=0,
                stages=json.dumps([[RunStatus.QUEUED, epoch_ms(now)]]),
                report="{}",
                asked_by=request.asked_by,
                asked_reason=request.asked_reason,
                **content,
            )
        )
        row = row_of(connection, run_id)
    if request.idempotency_key is not None:
        connection.execute(insert(KEY).values(idempotency_key=request.idempotency_key, run_id=row.run_id))
    return run_from(row), created


def requests_for_changes(connection: Connection) -> list[RunRequest]:
    """Removes the changes between two syncs and returns requests for them: one for the organizations and one for the
    users, or one full run if they are too many."""
    touched = take_pending(connection)
    if len(touched.organization_ids) > MAX_TOUCHED or len(touched.user_ids) > MAX_TOUCHED:
        return [RunRequest(trigger=CHANGES)]
    requests = []
    if touched.organization_ids:
        requests.append(RunRequest(trigger=CHANGES, organization_ids=touched.organization_ids))
    if touched.user_ids:
        requests.append(RunRequest(trigger=CHANGES, user_ids=touched.user_ids))
    return requests


def lock_queue(connection: Connection) -> None:
    """Locks the queue until the transaction ends."""
    if not is_sqlite(connection):
        statements.run(connection, "SELECT pg_advisory_xact_lock(:number)", {"number": _ENQUEUE_LOCK})


def _refuse_too_many(connection: Connection, request: RunRequest) -> None:
    if request.trigger != "resync":
        return
    queued = connection.scalar(
        select(func.count())
        .select_from(RUN)
        .where(RUN.c.status == RunStatus.QUEUED, RUN.c.trigger == request.trigger, RUN.c.approved_at.is_(None))
    )
    if queued is not None and queued >= MAX_QUEUED:
        raise QueueFullError(
            f"{queued} runs are queued already: wait until a worker has taken some, or request one full run"
            " instead of many narrow ones"
        )


def _content(request: RunRequest) -> dict[str, object]:
    """The columns in which identical requests are equal."""
    return {
        "organization_ids": _id_list(request.organization_ids),
        "user_ids": _id_list(request.user_ids),
        "dry_run": request.dry_run,
        "verify": request.verify,
        "allow_deletes": request.allow_deletes,
        "retry": request.retry,
        "kinds": _id_list(request.kinds),
        "items": json.dumps(sorted(set(request.items)), ensure_ascii=False),
        "requested_plan_id": request.plan_id,
    }


def _identical(connection: Connection, content: Mapping[str, object]) -> Row[tuple[object, ...]] | None:
    """The queued run of an identical request."""
    return connection.execute(
        select(RUN)
        .where(RUN.c.status == RunStatus.QUEUED, RUN.c.approved_at.is_(None))
        .where(*[RUN.c[name].is_(None) if value is None else RUN.c[name] == value for name, value in content.items()])
        .order_by(RUN.c.requested_at)
        .limit(1)
    ).first()


def _id_list(ids: Sequence[str]) -> str:
    return json.dumps(sorted(set(ids)), ensure_ascii=False)


def _of_key(connection: Connection, key: str | None) -> Row[tuple[object, ...]] | None:
    if key is None:
        return None
    return connection.execute(
        select(RUN).join(KEY, KEY.c.run_id == RUN.c.run_id).where(KEY.c.idempotency_key == key)
    ).first()


def _new_id(now: datetime, random: Random) -> str:
    """An id that sorts by time and cannot be guessed."""
    return f"{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}-{random.getrandbits(48):012x}"
