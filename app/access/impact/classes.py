"""Compares the decisions before and after, for classes of users and resources that decide alike.

``decide`` runs once for a class, not once for a pair. Two resources are alike if the same chain of access types and
grants leads up from them, before and after. Two users are alike if they have the same membership, groups and own
grants, as far as these groups and grants are on the resources in question.

Own grants make many small classes. So users who differ are taken together on the resources on which they do not
differ, and halved on the others, until they are alike (``_cover``). The number of rectangles grows with the number of
differing entries, not with that of pairs.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from app.access.decision.decide import DecisionPolicy, PlainQuestion, decide
from app.access.impact.changed import Place, UserState
from app.access.impact.side import Side
from app.access.impact.steps import STEPS_OF_DECISION, Steps
from app.access.impact.view import SideView
from app.access.records import AccessRole, ResourceKind

Resource = tuple[ResourceKind, str]

BEFORE, AFTER = 0, 1


class Rectangle(NamedTuple):
    """Users and resources of one kind: each of the users has the same change of access to each of the resources."""

    kind: ResourceKind
    before: AccessRole | None
    after: AccessRole | None
    user_ids: list[str]
    resource_ids: list[str]


class _Level(NamedTuple):
    """A folder or document on the way up, as far as it matters to decisions."""

    access_type: str
    grants: int
    """The number of the grants of groups on it; 0: none."""
    place: Place | None
    """Itself, if users have own grants on it."""
    above: int
    """The number of the chain above it; 0: the top."""


Alike = tuple[ResourceKind, tuple[int, int]]
"""Resources that are alike: their kind, and the numbers of their chains before and after; -1: no such resource."""

_BROKEN = -2
"""The chain of everything below a missing folder or a cycle."""


class Chains:
    """Numbers the chains of access types and grants of one side: equal chains have the same number."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._places = {place for grants in side.own_grants.values() for place in grants}
        self._levels: list[_Level] = [_Level("", 0, None, 0)]
        self._plain: list[int] = [0]
        self._numbers: dict[_Level, int] = {}
        self._grants: dict[frozenset[tuple[str, str]], int] = {}
        self._groups: list[frozenset[str]] = [frozenset()]
        self._of_folder: dict[str, int] = {}
        self._of_document: dict[str, int] = {}

    def of(self, resource: Resource) -> int:
        """The number of the chain of a resource."""
        kind, resource_id = resource
        if kind == "organization":
            return 0 if self._side.organization is not None else -1
        if kind == "folder":
            return self._folder(resource_id) if resource_id in self._side.folders else -1
        if resource_id not in self._of_document:
            self._of_document[resource_id] = self._document(resource_id)
        return self._of_document[resource_id]

    def plain(self, number: int) -> int:
        """The number of the chain without own grants, as it is for users who have none on it."""
        return self._plain[number] if number > 0 else number

    def groups_and_places(self, number: int) -> tuple[set[str], set[Place]]:
        """The groups, and the folders and documents of own grants, that the chain contains."""
        groups: set[str] = set()
        places: set[Place] = set()
        while number > 0:
            level = self._levels[number]
            groups |= self._groups[level.grants]
            if level.place is not None:
                places.add(level.place)
            number = level.above
        return groups, places

    def _document(self, document_id: str) -> int:
        found = self._side.documents.get(document_id)
        if found is None:
            return -1
        folder_id, access_type = found
        above = self._folder(folder_id) if folder_id else 0
        return above if above == _BROKEN else self._number(access_type, ("document", document_id), above)

    def _folder(self, folder_id: str) -> int:
        """The number of the chain of a folder, from that of the nearest folder above it that has one."""
        passed: dict[str, str] = {}
        above: str | None = folder_id
        while above is not None and above not in self._of_folder:
            folder = self._side.folders.get(above)
            if folder is None or above in passed:
                self._of_folder[above] = _BROKEN
                break
            passed[above] = folder.access_type or ""
            above = folder.parent_folder_id
        number = 0 if above is None else self._of_folder[above]
        for passed_id, access_type in reversed(passed.items()):
            if number != _BROKEN:
                number = self._number(access_type, ("folder", passed_id), number)
            self._of_folder[passed_id] = number
        return number

    def _number(self, access_type: str, place: Place, above: int) -> int:
        grants = frozenset(
            (grant.organization_user_group_id or "", grant.access_role.value)
            for grant in self._side.group_grants.get(place, ())
        )
        if grants not in self._grants:
            if not grants:
                self._grants[grants] = 0
            else:
                self._grants[grants] = len(self._groups)
                self._groups.append(frozenset(group_id for group_id, _ in grants))
        plain = self._intern(access_type, self._grants[grants], None, self.plain(above))
        if place not in self._places and plain == self.plain(above):
            return above
        number = self._intern(access_type, self._grants[grants], place if place in self._places else None, above)
        self._plain[number] = plain
        return number

    def _intern(self, access_type: str, grants: int, place: Place | None, above: int) -> int:
        level = _Level(access_type, grants, place, above)
        if level[:3] == ("", 0, None):
            return above
        if level not in self._numbers:
            self._numbers[level] = len(self._levels)
            self._levels.append(level)
            self._plain.append(len(self._plain))
        return self._numbers[level]


_Groups = tuple[frozenset[str], frozenset[str]]
_Own = tuple[frozenset[tuple[Place, AccessRole]], frozenset[tuple[Place, AccessRole]]]


@dataclass(slots=True)
class _Class:
    """Users who are alike, or classes of users who differ in own grants alone."""

    differing: set[Alike]
    """The resources on which the class may differ from users without groups, or without own grants."""
    users: list[str] = field(default_factory=list)
    parts: list["_Class"] = field(default_factory=list)


class AccessComparison:
    """Compares the decisions about users and resources that the two sides have loaded."""

    def __init__(self, sides: tuple[Side, Side], now: datetime, policy: DecisionPolicy, steps: Steps) -> None:
        self._sides = sides
        self._spend = steps.spend
        self._now = now
        self._policy = policy
        self._views = tuple(map(SideView, sides))
        self._chains = Chains(sides[BEFORE]), Chains(sides[AFTER])

    def rectangles(self, users: Collection[str], resources: Collection[Resource]) -> Iterator[Rectangle]:
        """The pairs of these users and resources whose access differs, each in exactly one rectangle.

        Raises ``TooManyStepsError`` if all comparisons together exceed the limit.
        """
        self._spend(len(users) + len(resources))
        before, after = self._chains
        alike: defaultdict[Alike, list[str]] = defaultdict(list)
        for resource in resources:
            numbers = before.of(resource), after.of(resource)
            if numbers != (-1, -1):
                alike[resource[0], numbers].append(resource[1])
        self._resources: Mapping[Alike, list[str]] = alike
        if alike:
            yield from self._of_classes(users)

    def _of_classes(self, users: Iterable[str]) -> Iterator[Rectangle]:
        by_group: defaultdict[tuple[int, str], set[Alike]] = defaultdict(set)
        by_place: defaultdict[tuple[int, Place], set[Alike]] = defaultdict(set)
        for alike in self._resources:
            for number, chain in enumerate(alike[1]):
                groups, places = self._chains[number].groups_and_places(chain)
                self._spend(1 + len(groups) + len(places))
                for group_id in groups:
                    by_group[number, group_id].add(alike)
                for place in places:
                    by_place[number, place].add(alike)
        for bases in self._classes(users, by_group, by_place).values():
            yield from self._cover(list(bases.values()), set(self._resources), self._cover_parts)

    def _classes(
        self,
        users: Iterable[str],
        by_group: Mapping[tuple[int, str], set[Alike]],
        by_place: Mapping[tuple[int, Place], set[Alike]],
    ) -> dict[object, dict[_Groups, _Class]]:
        """The users by their state and membership, by their groups, and by their own grants."""
        granted = tuple(frozenset(group_id for of, group_id in by_group if of == side) for side in (BEFORE, AFTER))
        granted_groups: dict[tuple[int, frozenset[str]], frozenset[str]] = {}
        found: dict[object, dict[_Groups, _Class]] = {}
        parts: dict[tuple[object, _Groups], dict[_Own, _Class]] = {}
        for user_id in users:
            base: list[UserState | AccessRole] = []
            groups: list[frozenset[str]] = []
            own: list[frozenset[tuple[Place, AccessRole]]] = []
            for number, side in enumerate(self._sides):
                base += (side.users.get(user_id), side.roles.get(user_id))
                of_user = side.groups_of(user_id)
                if (number, of_user) not in granted_groups:
                    granted_groups[number, of_user] = of_user & granted[number]
                groups.append(granted_groups[number, of_user])
                grants = side.own_grants.get(user_id)
                own.append(
                    frozenset(
                        (place, grant.access_role) for place, grant in grants.items() if (number, place) in by_place
                    )
                    if grants
                    else frozenset()
                )
            of_base, in_groups, with_own = tuple(base), (groups[0], groups[1]), (own[0], own[1])
            of_groups = found.setdefault(of_base, {})
            if in_groups not in of_groups:
                differing = {a for n in (0, 1) for group_id in in_groups[n] for a in by_group[n, group_id]}
                self._spend(len(differing))
                of_groups[in_groups] = _Class(differing)
            outer = of_groups[in_groups]
            inner = parts.setdefault((of_base, in_groups), {})
            if with_own not in inner:
                differing = {a for n in (0, 1) for place, _ in with_own[n] for a in by_place[n, place]}
                self._spend(len(differing))
                inner[with_own] = _Class(differing)
                outer.parts.append(inner[with_own])
                outer.differing |= differing
            inner[with_own].users.append(user_id)
            outer.users.append(user_id)
        return found

    def _cover(
        self,
        classes: Sequence[_Class],
        resources: set[Alike],
        of_single: Callable[[_Class, set[Alike]], Iterator[Rectangle]],
    ) -> Iterator[Rectangle]:
        """Rectangles of these classes and resources; on resources on which none of them differs, they are alike."""
        if not resources:
            return
        self._spend(len(resources) + sum(len(one.users) + len(one.differing) for one in classes))
        if len(classes) == 1:
            yield from of_single(classes[0], resources)
            return
        differing = {alike for one in classes for alike in one.differing if alike in resources}
        yield from self._compare(
            [user_id for one in classes for user_id in one.users],
            [alike for alike in resources if alike not in differing],
        )
        half = len(classes) // 2
        yield from self._cover(classes[:half], differing, of_single)
        yield from self._cover(classes[half:], differing, of_single)

    def _cover_parts(self, one: _Class, resources: set[Alike]) -> Iterator[Rectangle]:
        return self._cover(one.parts, resources, lambda part, rest: self._compare(part.users, rest, part.differing))

    def _compare(
        self, users: list[str], resources: Iterable[Alike], granted: Collection[Alike] = frozenset()
    ) -> Iterator[Rectangle]:
        """Compares the decisions about the first of the users, who are alike on these resources.

        ``granted``: the resources on which they may have own grants.
        """
        found: defaultdict[tuple[ResourceKind, AccessRole | None, AccessRole | None], list[str]] = defaultdict(list)
        decided: dict[object, tuple[AccessRole | None, AccessRole | None]] = {}
        for alike in resources:
            kind, numbers = alike
            plain = (kind, self._chains[BEFORE].plain(numbers[BEFORE]), self._chains[AFTER].plain(numbers[AFTER]))
            key = alike if alike in granted else plain
            if key not in decided:
                decided[key] = self._role(BEFORE, users[0], alike), self._role(AFTER, users[0], alike)
            before, after = decided[key]
            if before is not after:
                found[kind, before, after] += self._resources[alike]
        for (kind, before, after), resource_ids in found.items():
            yield Rectangle(kind, before, after, sorted(users), sorted(resource_ids))

    def _role(self, number: int, user_id: str, alike: Alike) -> AccessRole | None:
        """The role that the decision allows; None if it denies."""
        if alike[1][number] == -1:
            return None
        self._spend(STEPS_OF_DECISION)
        organization_id = self._sides[number].organization_id
        question = PlainQuestion(
            user_id=user_id, type=alike[0], resource_id=self._resources[alike][0], organization_id=organization_id
        )
        return decide(self._views[number], question, self._now, self._policy).access_role
