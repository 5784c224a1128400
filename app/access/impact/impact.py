"""The access impact of a candidate: every pair of user and resource whose access differs from the database.

A resource is an organization, a folder or a document. The access to it is the role that ``decide`` allows, or none.
Both sides are compared at one time. The pairs that may differ are found from what changed:

=========================================  =========================================================================
changed                                    pairs
=========================================  =========================================================================
organization                               all users, on everything in it
user (added, removed, disabled, enabled)   the user, on everything in the organizations in which they have an entry, and
                                           on everything public
membership                                 the user, on everything in the organization
folder, document                           all users, on it and everything below it, before and after
grant                                      the user, or the users of the group, on it and everything below it
group, member of a group                   the users who enter or leave groups, on what these groups have grants on
=========================================  =========================================================================

Of these pairs, ``classes.py`` compares the decisions. So a pair that is found without need is dropped there.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from sqlalchemy import Connection

from app.access.decision.decide import DecisionPolicy
from app.access.impact.changed import (
    ChangedModel,
    ChangedOrganization,
    Place,
    Tables,
    UserState,
    tables_before_and_after,
)
from app.access.impact.classes import AFTER, AccessComparison, Resource
from app.access.impact.side import EVERYBODY, EVERYTHING, Side
from app.access.impact.steps import MAX_STEPS, Steps
from app.access.records import AccessRole, AccessType, ResourceKind, User
from app.foundation.clock import epoch_ms
from app.foundation.database.statements import run

MAX_OTHERS_NAMED = 1_000
"""Users without any entry in an organization, who see what is public there, are listed by id up to this number."""


@dataclass(frozen=True, slots=True)
class AccessChange:
    """The same change of access of each of the users to each of the resources, which are of one kind."""

    organization_id: str
    kind: ResourceKind
    before: AccessRole | None
    after: AccessRole | None
    users: int
    user_ids: Sequence[str]
    """Empty if these are all enabled users without a membership, group or grant in the organization, before and after,
    and there are more than ``MAX_OTHERS_NAMED``."""
    resource_ids: Sequence[str]

    @property
    def pairs(self) -> int:
        return self.users * len(self.resource_ids)


def access_changes(connection: Connection, now: datetime, policy: DecisionPolicy) -> Iterator[AccessChange]:
    """All changes, organization by organization. Each pair of user and resource is in exactly one.

    ``connection``: that of a candidate, in the transaction of its refresh, after everything was carried out.
    Raises ``TooManyStepsError`` if the comparison exceeds ``MAX_STEPS``.
    """
    steps = Steps(MAX_STEPS)
    tables = tables_before_and_after(connection)
    model = ChangedModel(connection, *tables)
    for changed in model.organizations:
        yield from _joined(_OrganizationImpact(connection, tables, model, changed).changes(now, policy, steps))


class _OrganizationImpact:
    """The changes of access in one organization."""

    def __init__(
        self, connection: Connection, tables: tuple[Tables, Tables], model: ChangedModel, changed: ChangedOrganization
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._model = model
        self._changed = changed
        self._everybody: set[str] | None = None
        """All users with an entry in the organization; None if no change affects them all."""
        self._causes_of: defaultdict[str, set[frozenset[Place]]] = defaultdict(set)
        """User → sets of places of grants that change, or that groups have which the user enters or leaves."""

    def changes(self, now: datetime, policy: DecisionPolicy, steps: Steps) -> Iterator[AccessChange]:
        changed = self._changed
        self._before, self._after = (
            Side(self._connection, side, changed.organization_id, epoch_ms(now)) for side in self._tables
        )
        self._sides = self._before, self._after
        self._after.share(self._before, changed.unchanged_kinds, users=not self._model.users)
        public = self._load()
        comparison = AccessComparison(self._sides, now, policy, steps)
        if changed.users:
            yield from self._of_users(comparison, changed.users, set(self._everything()))
        of_all = set(self._everything()) if changed.everything else self._below(changed.places)
        if self._everybody is not None:
            yield from self._of_users(comparison, self._everybody - changed.users, of_all)
        for places, users in self._users_by_places().items():
            yield from self._of_users(comparison, users, self._below(places) - of_all)
        yield from self._of_others(comparison, of_all, public)

    def _users_by_places(self) -> dict[frozenset[Place], set[str]]:
        """The users of grants and groups that change, by the places on which their access may differ.

        All users with the same places are compared at once, so that everything below these is numbered once.
        """
        users_of_causes: defaultdict[frozenset[frozenset[Place]], set[str]] = defaultdict(set)
        for user_id, causes in self._causes_of.items():
            if user_id not in self._changed.users:
                users_of_causes[frozenset(causes)].add(user_id)
        found: defaultdict[frozenset[Place], set[str]] = defaultdict(set)
        for of_users, users in users_of_causes.items():
            found[frozenset().union(*of_users)] |= users
        return found

    def _of_users(
        self, comparison: AccessComparison, users: Collection[str], resources: Collection[Resource]
    ) -> Iterator[AccessChange]:
        for kind, before, after, user_ids, resource_ids in comparison.rectangles(users, resources):
            yield AccessChange(
                self._changed.organization_id, kind, before, after, len(user_ids), user_ids, resource_ids
            )

    def _of_others(
        self, comparison: AccessComparison, of_all: Collection[Resource], public: Collection[Resource] | None
    ) -> Iterator[AccessChange]:
        """The changes for users who have no entry in the organization: they all decide alike."""
        others: defaultdict[tuple[UserState, UserState], list[str]] = defaultdict(list)
        if self._changed.everything or self._changed.is_public:
            known = self._changed.users if self._everybody is None else self._everybody
            for user_id, user in self._model.users.items():
                if user_id not in known:
                    others[user.before, user.after].append(user_id)
            resources = of_all if self._changed.everything else set(self._everything() if public is None else public)
            for states, user_ids in others.items():
                for found in self._of_anybody(comparison, states, resources):
                    yield replace(found, users=len(user_ids), user_ids=sorted(user_ids))
        if self._everybody is not None and of_all:
            for found in self._of_anybody(comparison, (False, False), of_all):
                if self._unchanged_others:
                    named = self._unchanged_others <= MAX_OTHERS_NAMED
                    user_ids = self._ids_of_unchanged_others if named else []
                    yield replace(found, users=self._unchanged_others, user_ids=user_ids)

    def _of_anybody(
        self, comparison: AccessComparison, states: tuple[UserState, UserState], resources: Collection[Resource]
    ) -> Iterator[AccessChange]:
        for side, state in zip(self._sides, states, strict=True):
            side.users[_ANYBODY] = state
        return self._of_users(comparison, [_ANYBODY], resources)

    @cached_property
    def _unchanged_others(self) -> int:
        """The number of users without an entry who are enabled before and after."""
        (enabled,) = run(self._connection, _COUNT_ENABLED, table=self._tables[AFTER][User]).one()
        enabled -= sum(user.after is False for user in self._model.users.values())
        return int(enabled) - sum(map(self._is_enabled, self._everybody or ()))

    @cached_property
    def _ids_of_unchanged_others(self) -> list[str]:
        known = {*(self._everybody or ()), *self._model.users}
        enabled = run(self._connection, _ENABLED, table=self._tables[AFTER][User])
        return sorted(user_id for (user_id,) in enabled if user_id not in known)

    def _is_enabled(self, user_id: str) -> bool:
        return all(side.users.get(user_id) is False for side in self._sides)

    # Loading.

    def _load(self) -> set[Resource] | None:
        """Loads what the comparisons need. Returns what is public for users without an entry; None: everything."""
        changed = self._changed
        self._find_users_of_grants()
        regrouped = {*changed.grouped, *(user for side in self._sides for user in side.users_below(changed.groups))}
        affected = {*changed.users, *self._causes_of, *regrouped}
        if changed.everything or changed.places:
            self._everybody = {user_id for side in self._sides for user_id in side.holders()}
        for side in self._sides:
            side.load_users(affected if self._everybody is None else EVERYBODY, self._everybody or ())
        self._find_users_of_groups(regrouped)
        public = self._public_places()
        causes = {cause for of_user in self._causes_of.values() for cause in of_user}
        places = changed.places.union(public or (), *causes)
        whole = changed.everything or bool(changed.users) or public is None
        self._load_documents(EVERYTHING if whole else places)
        # Of both sides: what one loads, the other may share.
        below = self._below(changed.places)
        around = {place for side in self._sides for place in side.places_above(below)}
        for side in self._sides:
            side.load_grants_of(EVERYBODY if changed.everything else affected)
            side.load_grants_on(around)
        return public if public is None else self._below(public)

    def _find_users_of_grants(self) -> None:
        for user_id, places in self._changed.user_grants.items():
            self._causes_of[user_id].add(frozenset(places))
        for group_id, places in self._changed.group_grants.items():
            users = {user_id for side in self._sides for user_id in side.users_below([group_id])}
            self._add_cause(users, places)

    def _find_users_of_groups(self, users: Collection[str]) -> None:
        users_of: defaultdict[str, list[str]] = defaultdict(list)
        for user_id in users:
            for group_id in self._before.groups_of(user_id) ^ self._after.groups_of(user_id):
                users_of[group_id].append(user_id)
        for group_id, regrouped in users_of.items():
            places = {place for side in self._sides for place in side.granted_places.get(group_id, ())}
            self._add_cause(regrouped, places)

    def _add_cause(self, users: Iterable[str], places: Collection[Place]) -> None:
        cause = frozenset(places)
        for user_id in users if cause else ():
            self._causes_of[user_id].add(cause)

    def _public_places(self) -> set[Place] | None:
        if not self._changed.is_public:
            return set()
        organizations = [side.organization for side in self._sides]
        if any(one is not None and one.access_type is AccessType.PUBLIC for one in organizations):
            return None
        return {place for side in self._sides for place in side.public_places()}

    def _load_documents(self, places: Collection[Place] | None) -> None:
        if places is None:
            for side in self._sides:
                side.load_documents(EVERYTHING)
            return
        roots = [place_id for level, place_id in places if level == "folder"]
        folders = {folder_id for side in self._sides for folder_id in side.folders_below(roots)}
        for side in self._sides:
            side.load_documents(folders, [place_id for level, place_id in places if level == "document"])

    def _below(self, places: Collection[Place]) -> set[Resource]:
        """These folders and documents and everything below them, before and after."""
        return {resource for side in self._sides for resource in side.below(places)}

    def _everything(self) -> Iterator[Resource]:
        """All resources of the organization, of which all documents are loaded."""
        yield "organization", self._changed.organization_id
        for folder_id in {**self._before.folders, **self._after.folders}:
            yield "folder", folder_id
        for document_id in {**self._before.documents, **self._after.documents}:
            yield "document", document_id


_ANYBODY = ""
"""The id of a user without any entry; no real id is empty."""

_COUNT_ENABLED = "SELECT COUNT(*) FROM {table} WHERE NOT disabled"
_ENABLED = "SELECT user_id FROM {table} WHERE NOT disabled"


def _joined(changes: Iterable[AccessChange]) -> list[AccessChange]:
    """The changes, with those of the same resources or of the same users joined."""
    unnamed: list[AccessChange] = []
    by_resources: defaultdict[object, list[AccessChange]] = defaultdict(list)
    for one in changes:
        if one.user_ids:
            by_resources[one.kind, one.before, one.after, tuple(one.resource_ids)].append(one)
        else:
            unnamed.append(one)
    by_users: defaultdict[object, list[AccessChange]] = defaultdict(list)
    for same in by_resources.values():
        user_ids = tuple(sorted(user_id for one in same for user_id in one.user_ids))
        joined = replace(same[0], users=len(user_ids), user_ids=user_ids)
        by_users[joined.kind, joined.before, joined.after, user_ids].append(joined)
    return unnamed + [
        replace(same[0], resource_ids=sorted(resource_id for one in same for resource_id in one.resource_ids))
        for same in by_users.values()
    ]
