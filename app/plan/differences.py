"""The making of a plan: what has to be done so that the backend holds what the directory says.

The rules: ``app/plan/README.md``, "Differences".

``make_plan`` compares the desired state (``desired``) with the ledger and writes what differs to ``plan_item``: set
differences that the database makes, in one transaction in which it sees one revision of the access model and one of the
ledger. Memory does not grow with the number of items. A thing that differs becomes a row of the temporary table
``step`` with its *aspects*; ``app.plan.rules.RULES`` turns each aspect into one plan item, one operation.

What whoever applies a plan has to keep to:

1. Items are sent in the order of ``ordinal``, those with ``covered_by`` not at all (``read_items`` leaves them out).
   Neighbours with the same phase, operation, kind and scope share calls. A phase begins when the one before is settled.
   Calls of an operation that is ordered, with the same scope go one after the other.
2. After adds of containers failed: ``app.plan.stored.skip_dependents``, before the next phase.
3. Before each delete of an organization, folder, document or group: ``app.plan.stored.still_needed_below``. If it
   answers, the item is skipped with that text, and ``follow_coverers`` takes along what it covers.
4. An operation that succeeded writes the columns that ``SETTLES`` names from the plan item to the ledger. A row becomes
   ``certain`` when all of its thing's items in the plan are done: an unconfirmed thing is sent again with all that it
   has (a document: add, move, access type), because an "already exists" says nothing about the rest. An organization,
   folder or document that the ledger did not know and that "already exists" is told all of it at once: ``in_force``
   marks such adds.
5. A delete that succeeded removes the item and what it covers from the ledger. When a user was deleted from an
   organization, their rows of folderUser, documentUser and groupMember in that organization that remain become
   unconfirmed in the same transaction: the backend has taken them away. The plan adds them again at its end
   (``RESTORE_...``).
6. ``parent_id`` is empty at the top of the tree, where the backend says ``root``; an empty ``access_type`` of a folder
   is ``inheritFromParent``.

A group has no update operation. A changed name is therefore not a difference: adding the group again would be answered
"already exists" and change nothing, at the price of a call.

What failed before is tried again when its pause is over, at once when something else would be tried, and never while it
is parked (``item_failure``, written by apply).
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from random import Random

from sqlalchemy import Connection, Engine, insert
from sqlalchemy.exc import DBAPIError

from app.clock import epoch_ms
from app.database.engine import WRITE, is_sqlite
from app.database.statements import run, statement
from app.database.trouble import came_in_between
from app.ledger.ledger import FINGERPRINT, read_ledger
from app.plan.deletes import find_deletes, follow_coverers, restore_after_deletes
from app.plan.desired import compute
from app.plan.discards import forget_discarded, leave_discarded_alone
from app.plan.limits import hold_deletes
from app.plan.rules import RULES, Aspect, Kind
from app.plan.selection import EVERYTHING, Selection
from app.plan.settings import LimitSettings
from app.plan.stored import Hold, Plan, load_plan, skip_dependents
from app.store.sync_tables import PlanRow

_PLAN = PlanRow.__table__

_ROWS_AT_A_TIME = 5_000
_ATTEMPTS = 5
"""How often planning begins anew when another transaction came in between."""


class PlanningError(Exception):
    """A plan cannot be made; the text is for whoever asked for it."""


_STEP_TABLE = """
CREATE TEMPORARY TABLE step (
  kind TEXT NOT NULL,
  organization_id TEXT NOT NULL,
  container_id TEXT NOT NULL,
  item_id TEXT NOT NULL,
  aspects INTEGER NOT NULL,
  depth INTEGER NOT NULL,
  digest TEXT NOT NULL,
  parent_id TEXT NOT NULL,
  access_type TEXT NOT NULL,
  access_role TEXT NOT NULL,
  disabled BOOLEAN NOT NULL,
  via TEXT NOT NULL,
  cover_kind TEXT NOT NULL,
  cover_id TEXT NOT NULL,
  status TEXT NOT NULL,
  message TEXT NOT NULL,
  why TEXT NOT NULL,
  PRIMARY KEY (kind, organization_id, container_id, item_id)
) @keyed
"""

_RULE_TABLE = """
CREATE TEMPORARY TABLE rule (
  kind TEXT NOT NULL,
  aspect INTEGER NOT NULL,
  action TEXT NOT NULL,
  phase INTEGER NOT NULL,
  operation TEXT NOT NULL,
  scope_form TEXT NOT NULL,
  sentence TEXT NOT NULL,
  sends_payload BOOLEAN NOT NULL,
  PRIMARY KEY (kind, aspect)
) @keyed
"""

_DIFFERENCES = """
INSERT INTO step
SELECT d.kind, d.organization_id, d.container_id, d.item_id,
  CASE
    WHEN l.item_id IS NULL THEN {new}
      + CASE WHEN d.kind = 'document' AND d.access_type <> '' THEN {access} ELSE 0 END
      + CASE WHEN d.kind = 'organization' AND d.disabled THEN {disabled} ELSE 0 END
    WHEN NOT l.certain THEN {new} + CASE d.kind
      WHEN 'organization' THEN {disabled} WHEN 'folder' THEN {access} WHEN 'document' THEN {place} + {access} ELSE 0 END
    ELSE
      CASE WHEN l.digest <> d.digest OR l.access_role <> d.access_role
        OR (d.kind = 'folder' AND l.parent_id <> d.parent_id) THEN {content} ELSE 0 END
      + CASE WHEN d.kind = 'document' AND l.parent_id <> d.parent_id THEN {place} ELSE 0 END
      + CASE WHEN l.access_type <> d.access_type THEN {access} ELSE 0 END
      + CASE WHEN l.disabled <> d.disabled THEN {disabled} ELSE 0 END
  END,
  d.depth, d.digest, d.parent_id, d.access_type, d.access_role, d.disabled, d.via, '', '', 'planned', '',
  CASE WHEN NOT l.certain THEN 'told again, as it is not certain that the backend has it so' ELSE '' END
FROM desired d
LEFT JOIN ledger_item l ON l.ledger_id = :ledger_id AND l.kind = d.kind AND l.organization_id = d.organization_id
  AND l.container_id = d.container_id AND l.item_id = d.item_id
WHERE l.item_id IS NULL OR NOT l.certain
  OR (d.kind <> 'group' AND (l.digest <> d.digest OR l.parent_id <> d.parent_id OR l.access_type <> d.access_type
    OR l.access_role <> d.access_role OR l.disabled <> d.disabled))
ORDER BY d.kind, d.organization_id, d.container_id, d.item_id
"""

_FAILED_BEFORE = """
UPDATE step SET status = CASE WHEN f.parked THEN 'parked' ELSE 'waiting' END,
  message = CASE WHEN f.parked THEN 'parked after ' ELSE 'tried again from ' || @minute(f.retry_at) || ' on, after ' END
    || CAST(f.failures AS TEXT) || CASE f.failures WHEN 1 THEN ' failure: ' ELSE ' failures: ' END || f.message
FROM item_failure f
WHERE f.ledger_id = :ledger_id AND (f.parked OR f.retry_at > :now) AND step.kind = f.kind
  AND step.organization_id = f.organization_id AND step.container_id = f.container_id AND step.item_id = f.item_id
  AND f.deleting = (step.aspects = {gone}) AND step.cover_kind = '' AND step.status = 'planned'
  AND f.fingerprint = {fingerprint} AND NOT ({retried})
"""

_ITEMS = """
INSERT INTO plan_item (plan_id, ordinal, phase, action, kind, organization_id, container_id, item_id, operation, scope,
  digest, parent_id, access_type, access_role, disabled, payload, reason, covered_by, status, message, in_force,
  was)
SELECT :plan_id, x.ordinal, x.phase, x.action, x.kind, x.organization_id, x.container_id, x.item_id, x.operation,
  x.scope, x.digest, x.parent_id, x.access_type, x.access_role, x.disabled,
  CASE WHEN NOT x.sends_payload THEN ''
    WHEN x.kind = 'organization' THEN (
      SELECT a.payload FROM access_organization a WHERE a.organization_id = x.organization_id)
    WHEN x.kind = 'folder' THEN (
      SELECT a.payload FROM access_folder a WHERE a.organization_id = x.organization_id AND a.folder_id = x.item_id)
    WHEN x.kind = 'document' THEN (
      SELECT a.payload FROM access_document a
      WHERE a.organization_id = x.organization_id AND a.document_id = x.item_id)
    WHEN x.kind = 'group' THEN (
      SELECT a.payload FROM access_group a
      WHERE a.organization_id = x.organization_id AND a.organization_user_group_id = x.item_id)
    ELSE (SELECT a.payload FROM access_user a WHERE a.user_id = x.item_id) END,
  CASE WHEN x.why <> '' AND (x.action = 'delete' OR x.container_id = '' AND x.kind <> 'organizationUser') THEN x.why
    ELSE
    REPLACE(REPLACE(x.sentence, '{state}', CASE WHEN x.disabled THEN 'disabled' ELSE 'enabled' END), '{holder}',
      CASE WHEN x.kind = 'groupMember'
        THEN CASE WHEN x.via = '' THEN 'a member by name' ELSE 'a member of group ' || x.via || ', which is in it' END
        WHEN x.via = '' THEN 'the user by name' ELSE 'group ' || x.via END)
    || CASE WHEN x.why = '' THEN '' ELSE '; ' || x.why END END,
  NULL, x.status, x.message,
  CASE WHEN x.operation = 'add_organizations' OR x.operation = 'add_folder' AND (x.aspects & {access}) = 0
      OR x.operation = 'add_documents' AND (x.aspects & {place}) = 0
    THEN COALESCE((
      SELECT d.in_force FROM desired d WHERE d.kind = x.kind AND d.organization_id = x.organization_id
        AND d.container_id = x.container_id AND d.item_id = x.item_id), '')
    ELSE '' END,
  CASE WHEN x.action <> 'update' THEN '' ELSE COALESCE((
    SELECT '{"parentId":' || @json(l.parent_id) || ',"accessType":' || @json(l.access_type)
      || ',"accessRole":' || @json(l.access_role) || ',"disabled":' || CASE WHEN l.disabled THEN 'true' ELSE 'false' END
      || CASE WHEN l.digest = x.digest THEN '' ELSE ',"fields":' || COALESCE((
        SELECT f.payload FROM former_payload f
        WHERE f.kind = CASE WHEN x.kind IN ('organization', 'folder', 'document') THEN x.kind ELSE 'user' END
          AND f.organization_id = CASE WHEN x.kind IN ('folder', 'document') THEN x.organization_id ELSE '' END
          AND f.item_id = x.item_id AND f.digest = l.digest), 'null') END || '}'
    FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = x.kind AND l.organization_id = x.organization_id
      AND l.container_id = x.container_id AND l.item_id = x.item_id AND l.certain), '') END
FROM (
  SELECT ROW_NUMBER() OVER (
      ORDER BY y.phase, y.operation @bytes, y.kind @bytes, y.scope @bytes, y.depth, y.organization_id @bytes,
        y.container_id @bytes, y.item_id @bytes
    ) AS ordinal, y.*
  FROM (
    SELECT s.*, r.phase, r.action, r.operation, r.sentence, r.sends_payload,
      CASE r.scope_form
        WHEN 'none' THEN '[]'
        WHEN 'disabled' THEN CASE WHEN s.disabled THEN '[true]' ELSE '[false]' END
        WHEN 'organization' THEN '[' || @json(s.organization_id) || ']'
        WHEN 'container' THEN '[' || @json(s.organization_id) || ',' || CASE s.kind
          WHEN 'folderUser' THEN '"folder"' WHEN 'documentUser' THEN '"document"' ELSE '"group"' END
          || ',' || @json(s.container_id) || ']'
        WHEN 'parent' THEN '[' || @json(s.organization_id) || ',' || @json(s.parent_id) || ']'
        WHEN 'access' THEN '[' || @json(s.organization_id) || ',' || @json(s.access_type) || ']'
        ELSE '[' || @json(s.organization_id) || ',' || @json(s.item_id) || ']'
      END AS scope
    FROM step s CROSS JOIN rule r WHERE r.kind = s.kind AND (s.aspects & r.aspect) <> 0
  ) y
) x
ORDER BY x.ordinal
"""

_COVERED_BY = """
UPDATE plan_item SET covered_by = coverer.ordinal,
  reason = 'goes along with ' || coverer.kind || ' ' || coverer.item_id || ', which is gone from the directory'
FROM step s CROSS JOIN plan_item AS coverer
WHERE s.aspects = {gone} AND s.cover_kind <> '' AND coverer.plan_id = :plan_id AND coverer.kind = s.cover_kind
  AND coverer.organization_id = s.organization_id AND coverer.container_id = '' AND coverer.item_id = s.cover_id
  AND coverer.action = 'delete' AND plan_item.plan_id = :plan_id AND plan_item.kind = s.kind
  AND plan_item.organization_id = s.organization_id AND plan_item.container_id = s.container_id
  AND plan_item.item_id = s.item_id
"""

# Narrowed to users, nobody makes what their entries stand on.
_NOTHING_TO_STAND_ON = """
UPDATE plan_item SET status = 'skipped',
  message = 'what it belongs to is not in the backend yet: a run that is not narrowed to users brings it there'
WHERE plan_id = :plan_id AND status = 'planned' AND action <> 'delete' AND NOT EXISTS (
  SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND l.kind = CASE plan_item.kind
      WHEN 'folderUser' THEN 'folder' WHEN 'documentUser' THEN 'document' WHEN 'groupMember' THEN 'group'
      ELSE 'organization' END
    AND l.organization_id = plan_item.organization_id AND l.container_id = ''
    AND l.item_id = CASE plan_item.kind WHEN 'organizationUser' THEN plan_item.organization_id
      ELSE plan_item.container_id END AND l.certain)
"""

_HASHED = """
SELECT operation || '|' || kind || '|' || scope || '|' || @json(organization_id) || @json(container_id) ||
  @json(item_id) || '|' || digest || '|' || access_type || '|' || access_role || '|' ||
  CASE WHEN disabled THEN '1' ELSE '0' END || '|' || @json(parent_id) || '|' || status || '|' ||
  COALESCE(CAST(covered_by AS TEXT), '')
FROM plan_item WHERE plan_id = :plan_id ORDER BY ordinal
"""

_BITS = {name.lower(): str(int(aspect)) for name, aspect in Aspect.__members__.items()}
_TEMPORARY = ("desired", "step", "rule", "tally", "covered_pair")


def make_plan(
    engine: Engine,
    *,
    ledger_id: int,
    now: datetime,
    limits: LimitSettings,
    grace: timedelta = timedelta(0),
    selection: Selection = EVERYTHING,
    allow_deletes: bool = False,
    approving: str | None = None,
    random: Random | None = None,
    only_to_look: bool = False,
    retry: Sequence[str] | None = None,
) -> Plan:
    """Plans what brings the backend of this ledger in step with the directory at ``now``, and stores it.

    ``allow_deletes`` lifts the limits for this plan; what was discarded goes, too. ``approving`` is the id of a plan:
    this one then consists of the deletes that were held there and are still due, without limits, and of what they make
    necessary. ``only_to_look``: the plan alone is written; nothing is remembered because of it, no grace period begins.
    ``retry`` names the kinds of which it also holds what waits after a failure or is parked; empty: all.

    Raises ``PlanningError`` when the directory was never read (an empty access model would mean to delete everything),
    and when there is no such ledger or plan to approve.
    """
    identity = _new_id(now, random)
    for attempt in range(_ATTEMPTS):
        try:
            with _snapshot(engine, lock_at_once=attempt > 0) as connection:
                return _plan(
                    connection,
                    plan_id=identity,
                    ledger_id=ledger_id,
                    now=now,
                    limits=None if allow_deletes or approving else limits,
                    grace=grace,
                    selection=selection,
                    approving=approving,
                    notes_gone=not only_to_look,
                    retry=retry,
                )
        except DBAPIError as error:
            if not came_in_between(error) or attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def is_still_due(
    engine: Engine, plan: Plan, *, limits: LimitSettings, grace: timedelta = timedelta(0), allow_deletes: bool = False
) -> bool:
    """Whether planning now, for the moment for which the plan was made, comes to the very same plan; stores nothing.

    A plan may have been made from a candidate, of which nothing is left: only this tells whether the directory has
    become what the candidate was, and the ledger is what it was then.
    """
    for attempt in range(_ATTEMPTS):
        try:
            with _snapshot(engine, lock_at_once=attempt > 0) as connection:
                again = _plan(
                    connection,
                    plan_id=f"{plan.plan_id} again",
                    ledger_id=plan.ledger_id,
                    now=plan.created_at,
                    limits=None if allow_deletes else limits,
                    grace=grace,
                    selection=Selection.of(plan.organization_ids, plan.user_ids),
                    approving=None,
                    notes_gone=False,
                    retry=None,
                )
                connection.rollback()
                return again.plan_hash == plan.plan_hash
        except DBAPIError as error:
            if not came_in_between(error) or attempt + 1 == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def _snapshot(engine: Engine, *, lock_at_once: bool) -> Iterator[Connection]:
    """A write transaction that sees one state of the whole database.

    On SQLite the first attempt takes the write lock only when it comes to writing: most plans hold little or nothing,
    and nobody has to wait while they are computed.
    """
    options: dict[str, object] = {WRITE: lock_at_once} if is_sqlite(engine) else {"isolation_level": "REPEATABLE READ"}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def _new_id(now: datetime, random: Random | None) -> str:
    return f"plan-{now:%Y%m%d-%H%M%S}-{(random or Random()).getrandbits(40):010x}"  # noqa: S311 - a name, no secret


def _plan(
    connection: Connection,
    *,
    plan_id: str,
    ledger_id: int,
    now: datetime,
    limits: LimitSettings | None,
    grace: timedelta,
    selection: Selection,
    approving: str | None,
    notes_gone: bool,
    retry: Sequence[str] | None,
) -> Plan:
    revision, ledger_revision = _starting_point(connection, ledger_id, approving)
    parameters: dict[str, object] = {
        "plan_id": plan_id,
        "ledger_id": ledger_id,
        "now": epoch_ms(now),
        "grace_since": epoch_ms(now - grace),
        "organization_ids": selection.organizations_json,
        "user_ids": selection.users_json,
        "approving": approving,
        "retry_kinds": json.dumps(list(retry or Kind)) if retry is not None else "[]",
    }
    compute(connection, ledger_id=ledger_id, now=now, selection=selection)
    holds = _fill_steps(connection, parameters, selection, limits, notes_gone=notes_gone)
    _write_items(connection, parameters)
    skip_dependents(connection, ledger_id, plan_id)
    if selection.user_ids:
        run(connection, _NOTHING_TO_STAND_ON, parameters)
    for table in _TEMPORARY:
        run(connection, f"DROP TABLE IF EXISTS {table}")
    connection.execute(
        insert(_PLAN).values(
            plan_id=plan_id,
            ledger_id=ledger_id,
            revision=revision,
            ledger_revision=ledger_revision,
            plan_hash=_hash(connection, plan_id, ledger_id),
            created_at=epoch_ms(now),
            organization_ids=selection.organizations_json,
            user_ids=selection.users_json,
            limits=json.dumps([hold.to_wire() for hold in holds], ensure_ascii=False),
        )
    )
    plan = load_plan(connection, plan_id)
    assert plan is not None  # noqa: S101 - it was written by the statement above
    return plan


def _starting_point(connection: Connection, ledger_id: int, approving: str | None) -> tuple[int, int]:
    """The revisions of the access model and of the ledger that a plan is made from."""
    try:
        ledger = read_ledger(connection, ledger_id)
    except LookupError as error:
        raise PlanningError(str(error)) from error
    revision: int | None = connection.scalar(statement(connection, "SELECT MAX(revision) FROM access_revision"))
    if revision is None:
        raise PlanningError("the directory has not been read yet; run: usher directory refresh")
    if approving is not None:
        held = load_plan(connection, approving)
        if held is None or held.ledger_id != ledger_id:
            raise PlanningError(f"there is no plan {approving} of this backend")
    return revision, ledger.ledger_revision


def _fill_steps(
    connection: Connection,
    parameters: dict[str, object],
    selection: Selection,
    limits: LimitSettings | None,
    *,
    notes_gone: bool,
) -> tuple[Hold, ...]:
    run(connection, _STEP_TABLE)
    approving = parameters["approving"] is not None
    if not approving:
        run(connection, _DIFFERENCES, parameters, **_BITS)
    deletes = find_deletes(connection, parameters, selection, approving=approving, notes_gone=notes_gone)
    if notes_gone:
        forget_discarded(connection, int(str(parameters["ledger_id"])))
    _put_off_failed(connection, parameters)
    if not deletes:
        return ()
    ledger_id = int(str(parameters["ledger_id"]))
    if limits is not None:
        leave_discarded_alone(connection, ledger_id)
    follow_coverers(connection)
    holds = hold_deletes(connection, ledger_id, limits) if limits else ()
    if restore_after_deletes(connection):
        _put_off_failed(connection, parameters)
    return holds


def _put_off_failed(connection: Connection, parameters: dict[str, object]) -> None:
    run(
        connection,
        _FAILED_BEFORE,
        parameters,
        gone=_BITS["gone"],
        fingerprint=FINGERPRINT.replace("{row}", "step"),
        retried="f.kind IN (@list(retry_kinds))",
    )


def _write_items(connection: Connection, parameters: dict[str, object]) -> None:
    run(connection, _RULE_TABLE)
    connection.execute(
        statement(
            connection,
            "INSERT INTO rule VALUES (:kind, :aspect, :action, :phase, :operation, :scope_form, :sentence, :payload)",
        ),
        [
            {
                "kind": rule.kind.value,
                "aspect": int(rule.aspect),
                "action": rule.action.value,
                "phase": int(rule.phase),
                "operation": rule.operation,
                "scope_form": rule.scope.value,
                "sentence": rule.reason,
                "payload": rule.sends_payload,
            }
            for rule in RULES
        ],
    )
    run(connection, _ITEMS, parameters, access=_BITS["access"], place=_BITS["place"])
    run(connection, _COVERED_BY, parameters, gone=_BITS["gone"])


def _hash(connection: Connection, plan_id: str, ledger_id: int) -> str:
    """A hash over the items in their order, read as a stream: what they were made from may have other revisions by the
    time it is looked at again."""
    hashed = sha256(f"{ledger_id}\n".encode())
    streaming = {"stream_results": True, "max_row_buffer": _ROWS_AT_A_TIME}
    rows = connection.execute(statement(connection, _HASHED), {"plan_id": plan_id}, execution_options=streaming)
    # Of a text, SQLAlchemy takes no yield_per.
    for partition in rows.partitions(_ROWS_AT_A_TIME):
        hashed.update("\n".join(row[0] for row in partition).encode() + b"\n")
    return hashed.hexdigest()
