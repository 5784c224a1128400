"""Counts the users and resources of a plan's changes of access, each once: in total, by organization and by cause."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from app.access.records import Document, Folder, Grant, Group, GroupMember, Membership, Organization, User
from app.foundation.database.statements import run
from app.sync.plan.access_impact import DECISIVE_FIELDS, NAMED_ROWS
from app.sync.plan.stored_access import LOSSES_FIRST, AccessCause, StoredAccessChange, list_access, parsed_row

_CAUSES = tuple(record.kind for record in (Organization, User, Membership, Folder, Document, Group, GroupMember, Grant))
"""The kinds of causes, the more general ones first."""
_GONE = "removed or disabled"
_SUBJECT = ("kind", "organizationId", "folderId", "documentId", "organizationUserGroupId", "memberGroupId")
"""The fields in which the records of one cause are equal. They have no user."""
_OF_USER = frozenset({"userId", "userAlias"})
SHOWN_FIELDS = _OF_USER.union(_SUBJECT, DECISIVE_FIELDS)
"""The fields of a cause that identify its record, or that decisions read."""

# Of each organization, kind and effect, the most users and the most resources of one row.
_LARGEST_ROWS = """
SELECT MIN(ordinal) AS ordinal, organization_id, kind, before, after,
  MAX(users) AS users, MAX(resources) AS resources, SUM(pairs) AS pairs, '[]' AS user_ids, '[]' AS resource_ids,
  '{}' AS names
FROM plan_access WHERE plan_id = :plan_id AND ordinal > :after
GROUP BY organization_id, kind, before, after
"""
_SIZE = "SELECT COALESCE(SUM(users + resources), 0), COUNT(*) FROM plan_access WHERE plan_id = :plan_id"
_USERS = 3
"""The users that a cause names."""
_MAX_COUNTED_IDS = 100_000
_MAX_COUNTED_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class AffectedUsers:
    """The users and the resources of all changes with one effect, each counted once."""

    users: int
    resources: int
    kind: str
    """The kind of the resources. Empty: several."""
    is_exact: bool
    """Otherwise there are more."""


@dataclass(frozen=True, slots=True)
class CausedChanges:
    """The changes of access with the same cause."""

    organization_id: str
    """Empty: several."""
    change: str
    """``added``, ``changed``, ``removed``, or of users ``disabled`` or ``removed or disabled``. Empty: the cause is not
    stored."""
    record: Mapping[str, object]
    """The record that changes, as in ``record_to_wire``. Of several records, the fields that are equal."""
    names: Mapping[str, str]
    """The names of users and resources, by id."""
    effects: Mapping[str, AffectedUsers]
    """Effect → users and resources."""
    users: Sequence[str]
    """The first users. Empty if ``record`` names the only one."""
    ordinals: Sequence[int]
    """The rows, in ascending order. Empty: the cause is not stored."""


@dataclass(frozen=True, slots=True)
class ImpactTotals:
    """The users and resources of a plan's changes of access, in total, by organization and by cause."""

    changes: int
    """The number of rows."""
    total: Mapping[str, AffectedUsers]
    """Effect → users and resources. The effects are ``lose``, ``gain``, and changes of roles, such as ``editor →
    viewer``."""
    of_organization: Mapping[str, Mapping[str, AffectedUsers]]
    """Organization → effect → users and resources; the organizations with most pairs first."""
    of_causes: Sequence[CausedChanges]
    """The causes because of which most users lose access first, then those with most users, and the changes without a
    stored cause last."""


def affected_users(connection: Connection, plan_id: str) -> ImpactTotals:
    """The numbers are exact if the plan lists at most ``_MAX_COUNTED_IDS``. Otherwise they are those of the largest
    row, and of the rows that may have causes."""
    ids, changes = run(connection, _SIZE, {"plan_id": plan_id}).one()
    if ids <= _MAX_COUNTED_IDS and changes <= _MAX_COUNTED_ROWS:
        rows = list_access(connection, plan_id, limit=_MAX_COUNTED_ROWS)
    else:
        rows = list_access(connection, plan_id, limit=NAMED_ROWS, first_ids=1)
        further = run(connection, _LARGEST_ROWS, {"plan_id": plan_id, "after": rows[-1].ordinal})
        rows += [parsed_row(row, 1) for row in further.mappings()]
    within: defaultdict[str, list[StoredAccessChange]] = defaultdict(list)
    for row in rows:
        within[row.organization_id].append(row)
    largest = sorted(within.items(), key=lambda item: (-_pairs(item[1]), item[0]))
    of_organization = {organization_id: _effects(of_one) for organization_id, of_one in largest}
    return ImpactTotals(changes, _effects(rows), of_organization, _by_cause(rows))


def _by_cause(rows: Sequence[StoredAccessChange]) -> list[CausedChanges]:
    with_cause: defaultdict[tuple[object, ...], list[StoredAccessChange]] = defaultdict(list)
    for row in rows:
        change, record = _main_cause(row)
        # Documents are removed or added in large numbers, each the cause of its own rows.
        is_document = record.get("kind") == Document.kind and change != "changed"
        subject = ("kind", "organizationId") if is_document else _SUBJECT
        is_gone = record.get("kind") == User.kind and (change == "removed" or bool(record.get("disabled")))
        with_cause[_GONE if is_gone else change, *(record.get(name) for name in subject)].append(row)
    ordered = sorted(with_cause.values(), key=lambda of_cause: of_cause[0].ordinal)
    return sorted(
        (_caused_changes(of_cause) for of_cause in ordered),
        key=lambda caused: (not caused.change, [-users for users in _lost_and_all(caused.effects)]),
    )


def _lost_and_all(effects: Mapping[str, AffectedUsers]) -> tuple[int, int]:
    """The numbers of users who lose access, and of most users."""
    return effects["lose"].users if "lose" in effects else 0, max(one.users for one in effects.values())


def _main_cause(row: StoredAccessChange) -> AccessCause:
    """The cause of all users of the row. Empty if none is stored. A record of a user that is only changed, such as one
    with another role, comes after other causes."""

    def rank(cause: AccessCause) -> tuple[object, ...]:
        change, record = cause
        is_of_user = bool(_OF_USER & record.keys())
        return row.users > 1 and is_of_user, change == "changed" and is_of_user, _CAUSES.index(str(record["kind"]))

    return min(row.causes, key=rank, default=AccessCause("", {}))


def _caused_changes(rows: Sequence[StoredAccessChange]) -> CausedChanges:
    causes = [_main_cause(row) for row in rows]
    is_user = causes[0].record.get("kind") == User.kind
    changes = {"disabled" if is_user and record.get("disabled") else change for change, record in causes}
    first, *others = (cause.record for cause in causes)
    is_of_one_user = all(row.users == 1 for row in rows) and len({row.user_ids[0] for row in rows if row.user_ids}) == 1
    # A row has the cause of its first user. Other users have records of their own.
    shown = SHOWN_FIELDS if is_of_one_user or not _OF_USER & first.keys() else _SUBJECT
    organizations = {row.organization_id for row in rows}
    return CausedChanges(
        organization_id=organizations.pop() if len(organizations) == 1 else "",
        change=changes.pop() if len(changes) == 1 else _GONE,
        record={
            name: value
            for name, value in first.items()
            if name in shown and all(other.get(name) == value for other in others)
        },
        names={
            each: name
            for row in rows
            for part in row.names.values()
            if isinstance(part, dict)
            for each, name in part.items()
        },
        effects=_effects(rows),
        users=[]
        if is_of_one_user and _OF_USER & first.keys()
        else list(dict.fromkeys(each for row in rows for each in row.user_ids))[:_USERS],
        ordinals=[row.ordinal for row in rows] if causes[0].change else [],
    )


def _pairs(rows: Sequence[StoredAccessChange]) -> int:
    return sum(row.pairs for row in rows)


def _effects(rows: Sequence[StoredAccessChange]) -> dict[str, AffectedUsers]:
    """Effect → users and resources, losses first."""
    with_effect: defaultdict[str, list[StoredAccessChange]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (LOSSES_FIRST.index(row.effect), row.before)):
        with_effect[row.change_in_words if row.effect == "change" else row.effect].append(row)
    affected: dict[str, AffectedUsers] = {}
    for effect, of_effect in with_effect.items():
        users = {user_id for row in of_effect for user_id in row.user_ids}
        resources = {(row.organization_id, row.kind, each) for row in of_effect for each in row.resource_ids}
        kinds = {row.kind for row in of_effect}
        affected[effect] = AffectedUsers(
            max(len(users), *(row.users for row in of_effect)),
            max(len(resources), *(row.resources for row in of_effect)),
            kinds.pop() if len(kinds) == 1 else "",
            all(len(row.user_ids) == row.users and len(row.resource_ids) == row.resources for row in of_effect),
        )
    return affected
