"""Finds every user and resource whose access a dry run would change.

The *candidate* is the database as it would be after the run. A resource is an organization, a folder or a document. A
user's access to it is the role that ``decide`` allows, or none.

From what changed, ``affected.py`` finds the pairs of user and resource whose access may differ between the database and
the candidate (``app/access/impact/README.md``, "The pairs that may differ"). ``comparison.py`` decides each pair on
both sides as of the same moment, and drops those whose access is the same.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from sqlalchemy import Connection

from app.access.decision.decide import DecisionPolicy
from app.access.impact.affected import AffectedPairs
from app.access.impact.changed import ChangedModel, ChangedOrganization, Sided, Tables, tables_before_and_after
from app.access.impact.comparison import MAX_STEPS, AccessChange, AccessComparison, Steps
from app.access.impact.side import Side, UserOnSide
from app.access.records import User
from app.foundation.clock import epoch_ms
from app.foundation.database.statements import run

MAX_OTHERS_NAMED = 1_000
"""Users without an entry in an organization, who see what is public there, are listed by id up to this number."""


def access_changes(
    connection: Connection, now: datetime, policy: DecisionPolicy, check: Callable[[], None] = lambda: None
) -> Iterator[AccessChange]:
    """All changes, organization by organization. Each pair of user and resource is in exactly one.

    ``connection``: that of a candidate, in the transaction of its refresh, after everything was written.
    ``check`` is called before each organization, and may raise to end the comparison.
    Raises ``TooManyStepsError`` if the comparison exceeds ``MAX_STEPS``.
    """
    steps = Steps(MAX_STEPS)
    tables = tables_before_and_after(connection)
    model = ChangedModel(connection, tables)
    for changed in model.organizations:
        check()
        sides = Sided(*(Side(connection, each, changed.organization_id, epoch_ms(now)) for each in tables))
        sides.after.share(sides.before, changed.unchanged_kinds | (set() if model.users else {User}))
        pairs = AffectedPairs(sides, changed)
        comparison = AccessComparison(sides, now, policy, steps)
        yield from _join(_OrganizationImpact(connection, tables.after, model, changed, pairs, comparison).changes())


@dataclass(frozen=True)
class _OrganizationImpact:
    """The changes of access in one organization.

    *Others* are users without an entry in it: a membership, a grant, or a membership of a group.
    """

    connection: Connection
    tables_after: Tables
    model: ChangedModel
    changed: ChangedOrganization
    pairs: AffectedPairs
    comparison: AccessComparison

    def changes(self) -> Iterator[AccessChange]:
        for user_ids, resources in self.pairs.of_users():
            yield from self.comparison.changes({user_id: self.pairs.user(user_id) for user_id in user_ids}, resources)
        yield from self._changes_for_changed_others()
        yield from self._changes_for_unchanged_others()

    def _changes_for_changed_others(self) -> Iterator[AccessChange]:
        """The changes for users who change, and have no entry in the organization."""
        if self.changed.everything or self.changed.affects_outsiders:
            # Unless everybody is affected, ``changed.users`` contains all changed users with an entry.
            with_entries = self.changed.users if self.pairs.everybody is None else self.pairs.everybody
            others = {
                user_id: Sided(UserOnSide(states.before), UserOnSide(states.after))
                for user_id, states in self.model.users.items()
                if user_id not in with_entries
            }
            yield from self.comparison.changes(
                others, self.pairs.for_all if self.changed.everything else self.pairs.public
            )

    def _changes_for_unchanged_others(self) -> Iterator[AccessChange]:
        """The changes for all other enabled users without an entry: they have the same access."""
        if not self.pairs.for_all:
            return
        enabled_user = UserOnSide(disabled=False)
        for change in self.comparison.changes({"": Sided(enabled_user, enabled_user)}, self.pairs.for_all):
            count = self._number_of_unchanged_others
            if count:
                user_ids = self._unchanged_other_ids if count <= MAX_OTHERS_NAMED else []
                yield replace(change, users=count, user_ids=user_ids)

    @cached_property
    def _number_of_unchanged_others(self) -> int:
        """The number of users without an entry who are enabled before and after."""
        (enabled,) = run(self.connection, _COUNT_ENABLED, table=self.tables_after[User]).one()
        enabled -= sum(states.after is False for states in self.model.users.values())
        return int(enabled) - sum(map(self.pairs.is_enabled, self.pairs.everybody or ()))

    @cached_property
    def _unchanged_other_ids(self) -> list[str]:
        compared = {*(self.pairs.everybody or ()), *self.model.users}
        enabled = run(self.connection, _ENABLED, table=self.tables_after[User])
        return sorted(user_id for (user_id,) in enabled if user_id not in compared)


_COUNT_ENABLED = "SELECT COUNT(*) FROM {table} WHERE NOT disabled"
_ENABLED = "SELECT user_id FROM {table} WHERE NOT disabled"


def _join(changes: Iterable[AccessChange]) -> list[AccessChange]:
    """Joins the changes of the same resources, then those of the same users."""
    without_user_ids: list[AccessChange] = []
    by_resources: defaultdict[object, list[AccessChange]] = defaultdict(list)
    for change in changes:
        if change.user_ids:
            by_resources[change.kind, change.before, change.after, tuple(change.resource_ids)].append(change)
        else:
            without_user_ids.append(change)
    by_users: defaultdict[object, list[AccessChange]] = defaultdict(list)
    for group in by_resources.values():
        user_ids = tuple(sorted(user_id for change in group for user_id in change.user_ids))
        joined = replace(group[0], users=len(user_ids), user_ids=user_ids)
        by_users[joined.kind, joined.before, joined.after, user_ids].append(joined)
    return without_user_ids + [
        replace(group[0], resource_ids=sorted(resource_id for change in group for resource_id in change.resource_ids))
        for group in by_users.values()
    ]
