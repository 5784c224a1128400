"""Finds the pairs of user and resource in one organization whose access may differ, and loads them on both sides."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property

from app.access.impact.changed import ChangedOrganization, Place, Sided
from app.access.impact.resource_classes import Resource
from app.access.impact.side import Side, UserOnSide, folders_and_documents
from app.access.records import AccessType


class AffectedPairs:
    """The affected users and resources of an organization. Loads them on both sides when it is created."""

    def __init__(self, sides: Sided[Side], changed: ChangedOrganization) -> None:
        self._sides = sides
        self._changed = changed
        self._causes_of: defaultdict[str, set[frozenset[Place]]] = defaultdict(set)
        """User → sets of places of grants that change, or that groups have which the user enters or leaves."""
        self.everybody: set[str] | None = None
        """All users with an entry in the organization. None: no change affects them all."""
        if changed.everything or changed.places:
            self.everybody = {user_id for side in sides for user_id in side.holders()}
        self._affected: set[str] = set()
        self._load_users()
        self._load_documents()
        self._load_own_grants()

    def of_users(self) -> Iterator[tuple[Collection[str], Collection[Resource]]]:
        """Users with entries in the organization, and the resources on which to compare them. No pair is in two."""
        changed_users = self._changed.users
        if changed_users:
            yield changed_users, self._everything
        if self.everybody is not None:
            yield self.everybody - changed_users, self.for_all
        for places, users in self._users_by_places().items():
            yield users, self._below(places) - self.for_all

    @cached_property
    def for_all(self) -> set[Resource]:
        """The resources to which the access of all users may differ."""
        return self._everything if self._changed.everything else self._below(self._changed.places)

    @property
    def public(self) -> set[Resource]:
        """The resources that may be public. Only if ``affects_outsiders`` of the organization is true."""
        return self._everything if self._organization_is_public else self._below(self._public_places)

    def user(self, user_id: str) -> Sided[UserOnSide]:
        return Sided(self._sides.before.user(user_id), self._sides.after.user(user_id))

    def is_enabled(self, user_id: str) -> bool:
        """Whether the user is enabled before and after."""
        return all(side.users.get(user_id) is False for side in self._sides)

    def _users_by_places(self) -> dict[frozenset[Place], set[str]]:
        """The users of grants and groups that change, by the places on which their access may differ.

        All users with the same places are compared at once, so that everything below these is classified once.
        """
        users_of_causes: defaultdict[frozenset[frozenset[Place]], set[str]] = defaultdict(set)
        for user_id, causes in self._causes_of.items():
            if user_id not in self._changed.users:
                users_of_causes[frozenset(causes)].add(user_id)
        users_of_places: defaultdict[frozenset[Place], set[str]] = defaultdict(set)
        for causes_of_users, users in users_of_causes.items():
            users_of_places[frozenset().union(*causes_of_users)] |= users
        return users_of_places

    def _below(self, places: Collection[Place]) -> set[Resource]:
        """These folders and documents and everything below them, before and after."""
        return {resource for side in self._sides for resource in side.below(places)}

    @cached_property
    def _everything(self) -> set[Resource]:
        """All resources of the organization, of which all documents are loaded."""
        resources: set[Resource] = {("organization", self._changed.organization_id)}
        for side in self._sides:
            resources.update(("folder", folder_id) for folder_id in side.folders)
            resources.update(("document", document_id) for document_id in side.documents)
        return resources

    # Loading. Both sides load the same users and documents, because one may share what the other one loads.

    def _load_users(self) -> None:
        changed = self._changed
        for user_id, places in changed.user_grants.items():
            self._add_cause([user_id], places)
        for group_id, places in changed.group_grants.items():
            self._add_cause(self._users_below([group_id]), places)
        regrouped = changed.grouped | self._users_below(changed.groups)
        self._affected = {*changed.users, *self._causes_of, *regrouped}
        for side in self._sides:
            side.load_users(self.everybody or self._affected, all_entries=self.everybody is not None)
        self._add_causes_of_groups(regrouped)

    def _users_below(self, groups: Collection[str]) -> set[str]:
        return {user_id for side in self._sides for user_id in side.users_below(groups)}

    def _add_causes_of_groups(self, regrouped: Collection[str]) -> None:
        """Adds the places of the groups that these users enter or leave."""
        users_of: defaultdict[str, list[str]] = defaultdict(list)
        for user_id in regrouped:
            for group_id in self._sides.before.groups_of(user_id) ^ self._sides.after.groups_of(user_id):
                users_of[group_id].append(user_id)
        for group_id, users in users_of.items():
            self._add_cause(users, {place for side in self._sides for place in side.granted_places.get(group_id, ())})

    def _add_cause(self, users: Iterable[str], places: Collection[Place]) -> None:
        cause = frozenset(places)
        for user_id in users if cause else ():
            self._causes_of[user_id].add(cause)

    def _load_documents(self) -> None:
        changed = self._changed
        if changed.everything or changed.users or self._organization_is_public:
            for side in self._sides:
                side.load_documents()
            return
        causes = {cause for causes in self._causes_of.values() for cause in causes}
        places = changed.places.union(self._public_places, *causes)
        folders, documents = folders_and_documents(places)
        below = {folder_id for side in self._sides for folder_id in side.folders_below(folders)}
        for side in self._sides:
            side.load_documents("folder_id", below)
            side.load_documents("document_id", documents)

    @cached_property
    def _organization_is_public(self) -> bool:
        """Whether it is public, and users without an entry in it may be affected."""
        return self._changed.affects_outsiders and any(
            side.organization is not None and side.organization.access_type is AccessType.PUBLIC for side in self._sides
        )

    @cached_property
    def _public_places(self) -> set[Place]:
        """Public folders and documents, if users without an entry in the organization may be affected."""
        if not self._changed.affects_outsiders:
            return set()
        return {place for side in self._sides for place in side.public_places()}

    def _load_own_grants(self) -> None:
        below = self._below(self._changed.places)
        around = {place for side in self._sides for place in side.places_above(below)}
        for side in self._sides:
            if self._changed.everything:
                side.load_all_grants()
            else:
                side.load_grants_to(self._affected)
            side.load_grants_on(around)
