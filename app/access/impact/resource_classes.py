"""Groups resources into classes on which every user has the same access, unless the user has an own grant on one.

The decision about a resource depends on the access types and grants on the resource and on the folders above it. These
are its *chain*. Resources of the same kind whose chains are equal, before and after, are one class. For example:

==========================================  ====================================================
resource                                    chain
==========================================  ====================================================
folder ``plans``, restricted                restricted
document ``plans/roadmap``                  restricted
document ``plans/costs``                    restricted
document ``plans/budget``, grant of staff   grant of staff → restricted
document ``plans/offer``, grant of Ada      own grants on ``offer`` → restricted
==========================================  ====================================================

``roadmap`` and ``costs`` are one class. For users without an own grant on ``offer``, that document decides like them:
``ResourceClass.without_own_grants`` is their class.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from app.access.impact.changed import Place, Sided
from app.access.impact.side import Side
from app.access.records import ResourceKind

Resource = tuple[ResourceKind, str]
"""A resource of an organization: its kind and its id."""

Grantee = str | Place
"""What makes a user differ from others on a resource: a group with a grant, or a place with own grants."""

DENIED = 0
"""The chain of resources that do not exist, or are below a missing folder or a cycle: no user has access."""
TOP = 1
"""The empty chain."""


@dataclass(eq=False, frozen=True, slots=True)
class ResourceClass:
    """The resources of one kind with the same chains."""

    kind: ResourceKind
    chains: Sided[int]
    """The ids of the chains before and after."""
    without_own_grants: Sided[int]
    """The chains as they are for users without own grants on them."""
    resource_ids: list[str] = field(default_factory=list)


class _Level(NamedTuple):
    """A folder or document in a chain."""

    access_type: str
    grants: frozenset[tuple[str, str]]
    """The groups with a grant on it, and the roles."""
    place: Place | None
    """Itself, if users have own grants on it."""
    above: int
    """The chain above it."""


class Chains:
    """Numbers the chains of one side: equal chains have the same number."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._own_places = {grant.place for grants in side.own_grants.values() for grant in grants}
        self._levels = [_Level("", frozenset(), None, DENIED)] * 2
        self._ids: dict[_Level, int] = {}
        self.without_own_grants = [DENIED, TOP]
        """Chain → the chain as it is for users without own grants on it."""
        self._of: dict[Resource, int] = {
            ("organization", side.organization_id): DENIED if side.organization is None else TOP
        }

    def of(self, resource: Resource) -> int:
        """The chain of a resource."""
        if resource not in self._of:
            kind, resource_id = resource
            self._of[resource] = self._of_folder(resource_id) if kind == "folder" else self._of_document(resource_id)
        return self._of[resource]

    def grantees(self, chain: int) -> set[Grantee]:
        """The groups and own grants that the chain contains."""
        grantees: set[Grantee] = set()
        while chain > TOP:
            level = self._levels[chain]
            grantees.update(group_id for group_id, _ in level.grants)
            if level.place is not None:
                grantees.add(level.place)
            chain = level.above
        return grantees

    def _of_document(self, document_id: str) -> int:
        document = self._side.documents.get(document_id)
        if document is None:
            return DENIED
        above = self._of_folder(document.folder_id) if document.folder_id else TOP
        return self._extended(above, ("document", document_id), document.access_type)

    def _of_folder(self, folder_id: str) -> int:
        """The chain of a folder, from that of the nearest folder above it that was found before."""
        passed: dict[str, str] = {}
        above: str | None = folder_id
        while above is not None and ("folder", above) not in self._of:
            folder = self._side.folders.get(above)
            if folder is None or above in passed:
                self._of["folder", above] = DENIED
                break
            passed[above] = folder.access_type or ""
            above = folder.parent_folder_id
        chain = TOP if above is None else self._of["folder", above]
        for passed_id, access_type in reversed(passed.items()):
            chain = self._of["folder", passed_id] = self._extended(chain, ("folder", passed_id), access_type)
        return chain

    def _extended(self, above: int, place: Place, access_type: str) -> int:
        """The chain of a folder or document below the chain ``above``."""
        if above == DENIED:
            return DENIED
        grants = frozenset(
            (grant.organization_user_group_id or "", grant.access_role.value)
            for grant in self._side.group_grants.get(place, ())
        )
        plain = self._number(_Level(access_type, grants, None, self.without_own_grants[above]))
        chain = self._number(_Level(access_type, grants, place if place in self._own_places else None, above))
        self.without_own_grants[chain] = plain
        return chain

    def _number(self, level: _Level) -> int:
        if not (level.access_type or level.grants or level.place):
            return level.above
        if level not in self._ids:
            self._ids[level] = len(self._levels)
            self.without_own_grants.append(len(self._levels))
            self._levels.append(level)
        return self._ids[level]


class ResourceClasses:
    """The classes of some resources. Resources that are denied to all users on both sides are left out."""

    def __init__(self, chains: Sided[Chains], resources: Iterable[Resource]) -> None:
        classes: dict[tuple[ResourceKind, Sided[int]], ResourceClass] = {}
        for resource in resources:
            kind, resource_id = resource
            of_resource = Sided(chains.before.of(resource), chains.after.of(resource))
            if of_resource == (DENIED, DENIED):
                continue
            if (kind, of_resource) not in classes:
                plain = Sided(
                    chains.before.without_own_grants[of_resource.before],
                    chains.after.without_own_grants[of_resource.after],
                )
                classes[kind, of_resource] = ResourceClass(kind, of_resource, plain)
            classes[kind, of_resource].resource_ids.append(resource_id)
        self.all = set(classes.values())
        self.with_grants_to: Sided[dict[Grantee, set[ResourceClass]]] = Sided(defaultdict(set), defaultdict(set))
        """Group, or place of own grants → the classes whose chains contain its grants."""
        for each in self.all:
            for side, chain, with_grants_to in zip(chains, each.chains, self.with_grants_to, strict=True):
                for grantee in side.grantees(chain):
                    with_grants_to[grantee].add(each)

    def with_any_grant_to(self, grantees: Sided[Iterable[Grantee]]) -> set[ResourceClass]:
        """The classes on which one of these has grants."""
        classes: set[ResourceClass] = set()
        for on_side, with_grants_to in zip(grantees, self.with_grants_to, strict=True):
            classes.update(*(with_grants_to[grantee] for grantee in on_side))
        return classes
