"""A view of the database that reads the records of a whole batch of decisions at once.

Lists of access decide thousands of questions about one organization: they call ``load``, then ``decide``.
"""

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection

from app.access.browse.grants import ResourceIds
from app.access.browse.lookup import find_all, find_with_parents
from app.access.decision.ancestry import MAX_KEPT_ANCESTRY, Ancestry
from app.access.record_tables import TABLES_OF_KIND
from app.access.records import Document, Folder, Grant, Level, Membership, User
from app.access.sql_view import SqlView
from app.foundation.database.statements import json_list, json_lists, keep_join_order

_GRANT_COLUMNS = ", ".join(f"t.{name}" for name in TABLES_OF_KIND[Grant.kind].columns)

_OWN_GRANTS = """
SELECT {columns} FROM (
  SELECT p.value AS place, u.value AS user_id FROM (@list(places)) AS p CROSS JOIN (@list(users)) AS u LIMIT :pairs
) AS k CROSS JOIN model_grant t
WHERE t.organization_id = :organization_id AND t.folder_id = @part(k.place, 0) AND t.document_id = @part(k.place, 1)
  AND t.user_id = k.user_id AND t.organization_user_group_id = ''
"""
_GROUP_GRANTS = """
SELECT {columns} FROM (@list(places)) AS p CROSS JOIN model_grant t @by(ix_model_grant_of_groups)
WHERE t.organization_id = :organization_id AND t.folder_id = @part(p.value, 0) AND t.document_id = @part(p.value, 1)
  AND t.user_id = '' AND {of_groups}
"""


class BatchView(SqlView):
    """A view for many decisions about one organization. Call ``load`` for the users and resources of a batch before
    deciding about them. Everything else is read one by one."""

    def __init__(self, connection: Connection, organization_id: str, *, user_id: str | None = None) -> None:
        """``user_id``: the user whom all decisions are about. None: each batch has users of its own."""
        super().__init__(connection)
        self._user_id = user_id
        self._organization_id = organization_id
        self._places: set[ResourceIds] = set()
        """The places on which the own grants of the users were read."""
        self._own_grants: dict[str, dict[ResourceIds, Grant]] = {}
        """User → their grant on each place that has one."""
        self._group_grants: dict[ResourceIds, dict[str, Grant]] = {}
        """Place that was read → its grants, by group."""
        self._ancestries: dict[str, Ancestry] = {}
        """Folder → its ancestry, except deep ones."""
        self._deep_ancestry: tuple[str, Ancestry] | None = None
        """The last deep folder, and its ancestry."""

    def load(
        self, user_ids: Collection[str], *, folder_ids: Iterable[str] = (), document_ids: Collection[str] = ()
    ) -> None:
        """Reads what decisions about these users and resources need. Forgets the users of the batch before."""
        if self._user_id is None:
            self._forget_users()
        self._load_all(User, [("", user_id) for user_id in user_ids])
        self._load_all(Membership, [(self._organization_id, user_id) for user_id in user_ids])
        self._load_all(Document, [(self._organization_id, document_id) for document_id in document_ids])
        documents = [self.document(self._organization_id, document_id) for document_id in document_ids]
        folders = {*folder_ids, *(document.folder_id for document in documents if document and document.folder_id)}
        places: list[ResourceIds] = [ResourceIds(document_id=document_id) for document_id in document_ids]
        places += map(ResourceIds, self._load_folders(folders))
        self._load_own_grants([place for place in places if place not in self._places], user_ids)
        self._load_group_grants([place for place in places if place not in self._group_grants])
        if self._user_id is None and any(self._group_grants.values()):
            self._load_groups(self._organization_id, user_ids)

    def _forget_users(self) -> None:
        for user_id in self._own_grants:
            self._records.pop((User.kind, user_id), None)
            self._records.pop((Membership.kind, self._organization_id, user_id), None)
        self._places.clear()
        self._own_grants.clear()
        self._groups.clear()

    def _load_all(self, kind: type[User | Membership | Document], keys: Sequence[tuple[str, str]]) -> None:
        self._store(kind, [tuple(filter(None, key)) for key in keys], find_all(self.connection, kind, keys).values())

    def _load_folders(self, folder_ids: Collection[str]) -> set[str]:
        """Reads the folders and those above them, and returns the ids of all of them."""
        if not folder_ids:
            return set()
        folders = find_with_parents(self.connection, self._organization_id, folder_ids)
        parents = {folder.parent_folder_id for folder in folders.values() if folder.parent_folder_id}
        loaded = {*folder_ids, *folders, *parents}
        self._store(Folder, [(self._organization_id, folder_id) for folder_id in loaded], folders.values())
        return loaded

    def _load_own_grants(self, places: Sequence[ResourceIds], user_ids: Collection[str]) -> None:
        self._places.update(places)
        for user_id in user_ids:
            self._own_grants.setdefault(user_id, {})
        lists = {"places": json_lists(places), "users": json_list(user_ids)}
        # PostgreSQL may otherwise read all grants on a place or, without the LIMIT, all of a user for each place.
        keep_join_order(self.connection)
        grants = self._read_grants(_OWN_GRANTS, **lists, pairs=len(places) * len(user_ids))
        keep_join_order(self.connection, on=False)
        for grant in grants:
            self._own_grants[grant.user_id or ""][_place_of(grant)] = grant

    def _load_group_grants(self, places: Sequence[ResourceIds]) -> None:
        """Reads the grants of groups on these places. With ``user_id``, only those of the user's groups."""
        self._group_grants |= {place: {} for place in places}
        of_groups, lists = "TRUE", {"places": json_lists(places)}
        if self._user_id is not None:
            # The user is in few groups, while many groups may have grants.
            groups = self.groups(self._organization_id, self._user_id)
            if not groups:
                return
            of_groups = "t.organization_user_group_id IN (@list(groups))"
            lists["groups"] = json_list(groups)
        if places:
            for grant in self._read_grants(_GROUP_GRANTS, of_groups=of_groups, **lists):
                self._group_grants[_place_of(grant)][grant.organization_user_group_id or ""] = grant

    def ancestry_of(self, organization_id: str, folder_id: str) -> Ancestry:
        if folder_id in self._ancestries:
            return self._ancestries[folder_id]
        if self._deep_ancestry is not None and self._deep_ancestry[0] == folder_id:
            return self._deep_ancestry[1]
        ancestry = super().ancestry_of(organization_id, folder_id)
        if len(ancestry.folders) > MAX_KEPT_ANCESTRY:
            self._deep_ancestry = folder_id, ancestry
        else:
            self._ancestries[folder_id] = ancestry
        return ancestry

    def grants(self, organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        place = ResourceIds(resource_id) if level == "folder" else ResourceIds(document_id=resource_id)
        if place not in self._places or user_id not in self._own_grants:
            return super().grants(organization_id, level, resource_id, user_id)
        own = self._own_grants[user_id].get(place)
        of_groups: list[Grant] = []
        if group_grants := self._group_grants[place]:
            groups = self.groups(organization_id, user_id)
            of_groups = [group_grants[group] for group in groups if group in group_grants]
        return of_groups if own is None else [own, *of_groups]

    def _read_grants(self, query: str, of_groups: str = "", **given: str | int) -> list[Grant]:
        parameters = {"organization_id": self._organization_id, **given}
        return self._select(Grant, query, parameters, columns=_GRANT_COLUMNS, of_groups=of_groups)


def _place_of(grant: Grant) -> ResourceIds:
    return ResourceIds(grant.folder_id or "", grant.document_id or "")
