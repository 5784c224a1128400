"""Compares the decisions before and after a change, once for each class of users and each class of resources.

Users are one class if they have the same state, membership, groups and own grants, as far as these groups and grants
are on the resources that are compared. The classes are a tree: on most resources, users decide as if they had no own
grants, or no groups. For example, the folder ``plans`` is no longer restricted. Ada, Bob and Cy are members. Ada and
Bob are in a group with a grant on the document ``budget``, and Ada has an own grant on ``offer``:

==================  ==============  =====================  ==========================================================
users who have      class           decide otherwise on    changes that are found
==================  ==============  =====================  ==========================================================
a membership        Ada, Bob, Cy    everything             all three gain everything except ``budget`` and ``offer``;
                                                           Cy also gains ``budget`` and ``offer``
… and these groups  Ada, Bob        ``budget, offer``      Bob gains ``offer``
… and own grants    Ada             ``offer``              none
==================  ==============  =====================  ==========================================================

A class and the classes inside it have the same changes, except on the resources on which the inner ones decide
otherwise. For those, the list of inner classes is halved, and each half is handled in the same way
(``_without_parts``). So the number of changes grows with that of groups and grants, not with that of pairs.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.access.decision.decide import DecisionPolicy, PlainQuestion, decide
from app.access.impact.changed import Sided
from app.access.impact.resource_classes import DENIED, Chains, Grantee, Resource, ResourceClass, ResourceClasses
from app.access.impact.side import Side, UserOnSide
from app.access.impact.side_view import SideView
from app.access.records import AccessRole, ResourceKind

MAX_STEPS = 30_000_000
"""The limit of the work for all organizations of a candidate, so that a dry run does not hang on a mass change. A step
takes about a microsecond."""
_STEPS_OF_DECISION = 10
"""A decision takes as long as these steps."""

_Roles = Sided[AccessRole | None]
"""The access before and after. None: no access."""


class TooManyStepsError(Exception):
    """The changes are too many, or too different from each other, to compare."""


class Steps:
    """Counts the steps of a comparison: each pass over a user, resource or class, and each decision."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def spend(self, steps: int) -> None:
        """Raises ``TooManyStepsError`` if the limit is exceeded."""
        self._left -= steps
        if self._left < 0:
            raise TooManyStepsError


@dataclass(frozen=True, slots=True)
class AccessChange:
    """The same change of access of each of the users to each of the resources, which are of one kind."""

    organization_id: str
    kind: ResourceKind
    before: AccessRole | None
    after: AccessRole | None
    users: int
    user_ids: Sequence[str]
    """Empty if there are too many (``MAX_OTHERS_NAMED``). They are then all users who are enabled before and after, and
    have no membership, group or grant in the organization."""
    resource_ids: Sequence[str]

    @property
    def pairs(self) -> int:
        return self.users * len(self.resource_ids)


@dataclass(frozen=True, eq=False, slots=True)
class _UserClass:
    """Users who decide alike, except on the resources on which the classes inside it decide otherwise."""

    user: Sided[UserOnSide]
    differing: set[ResourceClass]
    """The resources on which it, or a class inside it, may decide otherwise than the class around it."""
    user_ids: Sequence[str]
    parts: Sequence["_UserClass"] = ()


class AccessComparison:
    """Compares the decisions about users and resources that the two sides have loaded."""

    def __init__(self, sides: Sided[Side], now: datetime, policy: DecisionPolicy, steps: Steps) -> None:
        self._sides = sides
        self._spend = steps.spend
        self._now = now
        self._policy = policy
        self._chains = Sided(Chains(sides.before), Chains(sides.after))

    def changes(
        self, users: Mapping[str, Sided[UserOnSide]], resources: Collection[Resource]
    ) -> Iterator[AccessChange]:
        """The pairs of these users and resources whose access differs, each in exactly one change.

        Raises ``TooManyStepsError`` if all comparisons together exceed the limit.
        """
        self._spend(len(users) + len(resources))
        classes = ResourceClasses(self._chains, resources)
        if classes.all:
            for outermost in _user_classes(users, classes):
                yield from self._compare_class(outermost)

    def _compare_class(self, users: _UserClass) -> Iterator[AccessChange]:
        changes = self._compare(users.user, users.differing)
        if users.parts:
            yield from self._without_parts(users.parts, changes)
        else:
            yield from self._grouped(users.user_ids, changes)
        for part in users.parts:
            yield from self._compare_class(part)

    def _without_parts(
        self, parts: Sequence[_UserClass], changes: Mapping[ResourceClass, _Roles]
    ) -> Iterator[AccessChange]:
        """The changes for the users of these classes, except on resources on which their class decides otherwise."""
        if not changes:
            return
        self._spend(len(changes) + sum(len(part.user_ids) + len(part.differing) for part in parts))
        differing = set().union(*(part.differing for part in parts))
        user_ids = [user_id for part in parts for user_id in part.user_ids]
        yield from self._grouped(user_ids, {each: roles for each, roles in changes.items() if each not in differing})
        if len(parts) > 1:
            rest = {each: roles for each, roles in changes.items() if each in differing}
            half = len(parts) // 2
            yield from self._without_parts(parts[:half], rest)
            yield from self._without_parts(parts[half:], rest)

    def _grouped(self, user_ids: Sequence[str], changes: Mapping[ResourceClass, _Roles]) -> Iterator[AccessChange]:
        resources: defaultdict[tuple[ResourceKind, _Roles], list[str]] = defaultdict(list)
        for each, roles in changes.items():
            resources[each.kind, roles] += each.resource_ids
        organization_id = self._sides.after.organization_id
        for (kind, roles), resource_ids in resources.items():
            yield AccessChange(organization_id, kind, *roles, len(user_ids), sorted(user_ids), sorted(resource_ids))

    def _compare(self, user: Sided[UserOnSide], classes: Collection[ResourceClass]) -> dict[ResourceClass, _Roles]:
        """The changes for such users. Decides once for resources that differ only in grants that they do not have."""
        views = Sided(SideView(self._sides.before, user.before), SideView(self._sides.after, user.after))
        has_own_grants = any(on_side.own_grants for on_side in user)
        decided: dict[tuple[ResourceKind, Sided[int]], _Roles] = {}
        changes: dict[ResourceClass, _Roles] = {}
        for each in classes:
            chains = each.chains if has_own_grants else each.without_own_grants
            if (each.kind, chains) not in decided:
                decided[each.kind, chains] = Sided(
                    self._role(views.before, each, chains.before), self._role(views.after, each, chains.after)
                )
            roles = decided[each.kind, chains]
            if roles.before is not roles.after:
                changes[each] = roles
        return changes

    def _role(self, view: SideView, resources: ResourceClass, chain: int) -> AccessRole | None:
        if chain == DENIED:
            return None
        self._spend(_STEPS_OF_DECISION)
        question = PlainQuestion(
            user_id=view.user_id,
            type=resources.kind,
            resource_id=resources.resource_ids[0],
            organization_id=view.organization_id,
        )
        return decide(view, question, self._now, self._policy).access_role


def _user_classes(users: Mapping[str, Sided[UserOnSide]], classes: ResourceClasses) -> Iterator[_UserClass]:
    """The classes of users with the same state and membership, each with the classes inside it."""
    alike: defaultdict[Sided[UserOnSide], list[str]] = defaultdict(list)
    for user_id, user in users.items():
        alike[Sided(*map(_narrowed, user, classes.with_grants_to))].append(user_id)
    in_groups: defaultdict[Sided[UserOnSide], list[_UserClass]] = defaultdict(list)
    for user, user_ids in alike.items():
        differing = classes.with_any_grant_to(Sided(*(on_side.places for on_side in user)))
        without = Sided(*(on_side._replace(own_grants=frozenset()) for on_side in user))
        in_groups[without].append(_UserClass(user, differing, user_ids))
    outermost: defaultdict[Sided[UserOnSide], list[_UserClass]] = defaultdict(list)
    for user, parts in in_groups.items():
        differing = classes.with_any_grant_to(Sided(*(on_side.groups for on_side in user)))
        without = Sided(*(on_side._replace(groups=frozenset()) for on_side in user))
        outermost[without].append(_around(user, differing, parts))
    for user, parts in outermost.items():
        yield _around(user, classes.all, parts)


def _around(user: Sided[UserOnSide], differing: set[ResourceClass], parts: Sequence[_UserClass]) -> _UserClass:
    user_ids = [user_id for part in parts for user_id in part.user_ids]
    return _UserClass(user, differing.union(*(part.differing for part in parts)), user_ids, parts)


def _narrowed(user: UserOnSide, compared: Mapping[Grantee, object]) -> UserOnSide:
    """The user with those groups and own grants alone that are on the compared resources."""
    return user._replace(
        groups=frozenset(group_id for group_id in user.groups if group_id in compared),
        own_grants=frozenset(grant for grant in user.own_grants if grant.place in compared),
    )
