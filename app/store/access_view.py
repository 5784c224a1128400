"""What does the access model say about everything that a batch of questions touches, in one revision?

``load_view`` reads it in a fixed number of statements (see ``access_queries``), whatever the size of the batch, and
gives the ``AccessView`` that ``app.access.decide`` reads. ``AccessViewLoader`` does so in a read snapshot of its own,
and keeps the organizations, folders and groups that it read as long as the revision stays.

This is the hot path of the permission provider: statements go straight to the database driver.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, Engine

from app.access.decide import Asked, DecisionPolicy
from app.access.records import (
    ContextGrant,
    Document,
    Grant,
    GroupMember,
    Level,
    Membership,
    Organization,
    User,
)
from app.access.way import Obstacle, Way
from app.database.engine import driver_snapshot
from app.store.access_queries import AT_FIRST, FEW, Statements, statements
from app.store.access_rows import (
    Row,
    context_grant_from_row,
    document_from_row,
    folder_from_row,
    grant_from_row,
    group_grant,
    membership_from_row,
    organization_from_row,
    own_grant,
    user_from_row,
)
from app.store.access_structure import NEVER_READ, Pair, Stamp, Structure

Texts = Statements[str]
Run = Callable[[str, object], list[Any]]
"""Runs a statement with its JSON parameter."""
Place = tuple[str, str, str]
"""An organization, and a folder or a document in it; the other one is empty."""

_NO_WAY = Way((), Obstacle.UNKNOWN)


class Person:
    """A user in an organization."""

    __slots__ = ("direct_groups", "groups", "is_crowded", "membership", "own_documents", "own_folders")

    def __init__(self) -> None:
        self.membership: Membership | None = None
        self.own_documents: dict[str, Row] = {}
        self.own_folders: dict[str, Row] = {}
        """His own grants by where they stand, as rows because few of them are ever asked for."""
        self.is_crowded = False
        """Whether they are too many to be read at once."""
        self.direct_groups: tuple[str, ...] = ()
        self.groups: frozenset[str] = frozenset()
        """All groups that he is a member of, through other groups too."""


class AccessViewLoader:
    """Loads the view of a batch in a read snapshot of its own, and keeps the structure as long as the revision stays.

    With ``names`` records carry their names and further fields; without it those are empty, which no decision minds.
    Database errors are SQLAlchemy's.
    """

    def __init__(self, engine: Engine, policy: DecisionPolicy, *, names: bool = False) -> None:
        self._engine = engine
        self._hints = policy.unknown_document == "inherit_folder"
        self._texts = statements(engine.dialect.name, names=names)
        self._at_first = AT_FIRST[engine.dialect.name]
        self._structure = Structure(NEVER_READ)

    def __call__(self, questions: Sequence[Asked]) -> "SqlAccessView":
        with driver_snapshot(self._engine, self._at_first) as connection:
            return _load(questions, self._texts, _runner(connection), self._kept, hints=self._hints)

    def _kept(self, stamp: Stamp) -> Structure:
        kept = self._structure
        if kept.stamp != stamp or kept.is_full():
            kept = Structure(stamp)
            if stamp != NEVER_READ:
                self._structure = kept
        return kept


def load_view(
    connection: Connection, questions: Sequence[Asked], *, policy: DecisionPolicy, names: bool = False
) -> "SqlAccessView":
    """The view that answers ``questions`` under ``policy``, of the revision that ``connection``'s transaction sees.

    The view says nothing about what the questions do not touch. With ``names``, names and further fields are read too.
    """
    dialect = connection.dialect.name
    driver: Any = connection.connection.dbapi_connection
    if AT_FIRST[dialect]:
        driver.execute(AT_FIRST[dialect])
    hints = policy.unknown_document == "inherit_folder"
    return _load(questions, statements(dialect, names=names), _runner(driver), Structure, hints=hints)


def _runner(driver_connection: Any) -> Run:
    # For these statements SQLAlchemy's result machinery would cost more than they do.
    def run(text: str, asked: object) -> list[Any]:
        answer = driver_connection.execute(text, {"asked": _json(asked)}).fetchone()
        rows: list[Any] = orjson.loads(answer[0])
        return rows

    return run


def _json(asked: object) -> str:
    try:
        text = orjson.dumps(asked).decode()
    except TypeError:  # half a surrogate pair, which no stored text holds
        return orjson.dumps(_storable(asked)).decode()
    return orjson.dumps(_storable(asked)).decode() if "\\u0000" in text else text


def _storable(value: Any) -> Any:
    """``value`` with a stand-in for characters that databases refuse; an id with one then finds a wrong row or none.

    A wrong row does no harm: it is kept under its own id, for which nobody asked.
    """
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_storable(key): _storable(inner) for key, inner in value.items()}
    return [_storable(inner) for inner in value]


def _by_organization(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    asked: dict[str, list[str]] = {}
    for organization_id, member_id in pairs:
        listed = asked.get(organization_id)
        if listed is None:
            asked[organization_id] = [member_id]
        else:
            listed.append(member_id)
    return asked


def _load(
    questions: Sequence[Asked], texts: Texts, run: Run, kept: Callable[[Stamp], Structure], *, hints: bool
) -> "SqlAccessView":
    people: dict[Pair, Person] = {}
    documents: dict[Pair, None] = {}
    above: dict[Pair, None] = {}
    """Folders from which a way leads up."""
    has_context = False
    for question in questions:
        organization_id, kind = question.organization_id, question.type
        pair = (organization_id, question.user_id)
        if pair not in people:
            people[pair] = Person()
        if kind == "folder":
            above[organization_id, question.resource_id] = None
        elif kind != "organization":
            documents[organization_id, question.resource_id] = None
            has_context |= kind == "context"
            if hints and question.parent_folder_id is not None:
                above[organization_id, question.parent_folder_id] = None
    asked = {"u": _by_organization(people), "d": _by_organization(documents)}
    in_force, users, memberships, group_edges, own_grants, found = run(texts.batch, asked)
    view = SqlAccessView(kept((in_force[0][0], in_force[0][1]) if in_force else NEVER_READ), people)
    for row in users:
        view.users[row[0]] = user_from_row(row)
    _keep_people(view, memberships, group_edges, own_grants)
    _keep_documents(view, found, above)
    _load_organizations(view.kept, asked["u"], texts, run)
    _load_ways([pair for pair in above if pair not in view.kept.ways], view.kept, texts, run)
    if view.is_crowded():
        _load_exact(questions, view, texts, run)
    if has_context:
        _load_context_grants(questions, view, texts, run)
    return view


def _keep_people(
    view: "SqlAccessView", memberships: Iterable[Row], group_edges: Iterable[Row], own_grants: Iterable[Row]
) -> None:
    kept, people = view.kept, view.people
    strangers = Person()  # takes what a stand-in for a character found
    for row in memberships:
        people.get((row[0], row[1]), strangers).membership = membership_from_row(row)
    direct: dict[Pair, list[str]] = {}
    above: dict[Pair, list[str]] = {}
    for organization_id, group_id, user_id, member_group_id in group_edges:
        edges, member_id = (direct, user_id) if user_id else (above, member_group_id)
        edges.setdefault((organization_id, member_id), []).append(group_id)
    kept.groups_above.update((pair, tuple(groups)) for pair, groups in above.items())
    for pair, groups in direct.items():
        if pair in people:
            people[pair].direct_groups = tuple(groups)
            people[pair].groups = frozenset(kept.reached(pair[0], groups))
    for organization_id, user_id, rows in own_grants:
        person = people.get((organization_id, user_id), strangers)
        if len(rows) > FEW:
            person.is_crowded = True
            continue
        for row in rows:
            if row[0]:
                person.own_folders[row[0]] = row
            else:
                person.own_documents[row[1]] = row


def _keep_documents(view: "SqlAccessView", found: Iterable[Row], above: dict[Pair, None]) -> None:
    """The documents that were found; ``above`` also takes the folders in which they lie."""
    for row in found:
        organization_id, document_id, folder_id, _, _, grants = row
        view.documents[organization_id, document_id] = document_from_row(row)
        if folder_id:
            above[organization_id, folder_id] = None
        if grants:
            view.document_grants[organization_id, document_id] = grants if len(grants) <= FEW else None


def _load_organizations(kept: Structure, wanted: Iterable[str], texts: Texts, run: Run) -> None:
    organizations: dict[str, Organization | None] = {name: None for name in wanted if name not in kept.organizations}
    if organizations:
        found = run(texts.organizations, list(organizations))
        organizations.update((row[0], organization_from_row(row)) for row in found)
        kept.organizations.update(organizations)


def _load_ways(pairs: list[Pair], kept: Structure, texts: Texts, run: Run) -> None:
    """The folders from which ways lead up, those above them, and what groups hold on any of them."""
    if not pairs:
        return
    unknown = [pair for pair in pairs if pair not in kept.folders]
    if unknown:
        _load_folders(unknown, kept, texts, run)
    for organization_id, folder_id in pairs:
        kept.keep_way(organization_id, kept.way_up(organization_id, folder_id), folder_id)


def _load_folders(pairs: list[Pair], kept: Structure, texts: Texts, run: Run) -> None:
    rows = run(texts.folders, _by_organization(pairs))
    grants: dict[Pair, tuple[Grant, ...] | None] = {}
    for organization_id, folder_id, _, _, _, listed in rows:
        grants[organization_id, folder_id] = (
            tuple(group_grant(organization_id, folder_id, None, row) for row in listed) if len(listed) <= FEW else None
        )
    folders = dict.fromkeys(pairs) | {(row[0], row[1]): folder_from_row(row) for row in rows}
    for (organization_id, _), folder in list(folders.items()):
        if folder is not None and folder.parent_folder_id is not None:
            folders.setdefault((organization_id, folder.parent_folder_id), None)
    # In this order: whoever finds a folder there finds its grants too.
    kept.folder_grants.update(grants)
    kept.folders.update(folders)


def _load_exact(questions: Sequence[Asked], view: "SqlAccessView", texts: Texts, run: Run) -> None:
    """The grants of those who have too many to be read at once, and of groups where there are too many."""
    asked: dict[str, dict[str, dict[str, dict[str, None]]]] = {}

    def wanted(question: Asked, part: str, id_: str) -> None:
        users = asked.setdefault(question.organization_id, {})
        of_user = users.setdefault(question.user_id, {"f": {}, "d": {}, "gf": {}, "gd": {}, "g": {}})
        if part[0] == "g":
            of_user["g"] = dict.fromkeys(view.people[question.organization_id, question.user_id].groups)
        of_user[part][id_] = None

    for question in questions:
        person = view.people[question.organization_id, question.user_id]
        document_id, folder_ids = view.levels(question)
        levels = [("d", document_id)] if document_id is not None else []
        levels.extend(("f", folder_id) for folder_id in folder_ids)
        for part, id_ in levels:
            if person.is_crowded:
                wanted(question, part, id_)
            if person.groups and view.is_crowded_with_groups(question.organization_id, part, id_):
                wanted(question, f"g{part}", id_)
    lists = {
        organization_id: {user_id: {part: list(ids) for part, ids in parts.items()} for user_id, parts in users.items()}
        for organization_id, users in asked.items()
    }
    if not lists:
        return
    for row in run(texts.exact_grants, lists):
        listed = view.exact_grants.setdefault((row[0], row[1], row[2]), [])
        grant = grant_from_row(row)
        if grant not in listed:
            listed.append(grant)


def _load_context_grants(questions: Sequence[Asked], view: "SqlAccessView", texts: Texts, run: Run) -> None:
    asked: dict[str, dict[str, dict[str, Any]]] = {}
    for question in questions:
        if question.type == "context" and question.context:
            of_user = asked.setdefault(question.organization_id, {}).setdefault(question.user_id, {"a": {}})
            of_user["a"].setdefault(question.resource_id, []).append(dict(question.context))
    if not asked:
        return
    for organization_id, users in asked.items():
        for user_id, of_user in users.items():
            of_user["g"] = list(view.people[organization_id, user_id].groups)
    for row in run(texts.context_grants, asked):
        view.context_rows.setdefault(row[0], []).append(context_grant_from_row(row))


class SqlAccessView:
    """An ``AccessView`` over what was loaded for a batch, and the structure that is kept beyond it.

    What is no method of the port is for the functions above, which fill it.
    """

    __slots__ = ("context_rows", "document_grants", "documents", "exact_grants", "kept", "people", "users")

    def __init__(self, kept: Structure, people: dict[Pair, Person]) -> None:
        self.kept = kept
        self.people = people
        self.users: dict[str, User] = {}
        self.documents: dict[Pair, Document] = {}
        self.document_grants: dict[Pair, list[Row] | None] = {}
        """The grants of groups on documents that have any, as rows; None: too many to be read at once."""
        self.exact_grants: dict[Place, list[Grant]] = {}
        self.context_rows: dict[str, list[ContextGrant]] = {}

    def is_crowded(self) -> bool:
        """Whether there is anything of which there was too much to be read at once."""
        return (
            None in self.document_grants.values()
            or self.kept.is_crowded
            or any(person.is_crowded for person in self.people.values())
        )

    def is_crowded_with_groups(self, organization_id: str, part: str, id_: str) -> bool:
        """Whether too many grants of groups stand on the folder (``f``) or document (``d``) to be read at once."""
        grants: Mapping[Pair, object] = self.kept.folder_grants if part == "f" else self.document_grants
        return grants.get((organization_id, id_), ()) is None

    def levels(self, question: Asked) -> tuple[str | None, tuple[str, ...]]:
        """Where grants that reach what is asked for may stand: the document, if it is known, and folders."""
        organization_id, document_id = question.organization_id, question.resource_id
        if question.type == "organization":
            return None, ()
        if question.type == "folder":
            return None, self._folder_ids(organization_id, document_id)
        document = self.documents.get((organization_id, document_id))
        above = question.parent_folder_id if document is None else document.folder_id
        return (
            None if document is None else document_id,
            () if above is None else self._folder_ids(organization_id, above),
        )

    def _folder_ids(self, organization_id: str, folder_id: str) -> tuple[str, ...]:
        kept = self.kept.ways.get((organization_id, folder_id))
        return () if kept is None else kept.folder_ids

    @property
    def revision(self) -> int:
        return self.kept.stamp[0]

    def organization(self, organization_id: str) -> Organization | None:
        return self.kept.organizations.get(organization_id)

    def user(self, user_id: str) -> User | None:
        return self.users.get(user_id)

    def membership(self, organization_id: str, user_id: str) -> Membership | None:
        person = self.people.get((organization_id, user_id))
        return None if person is None else person.membership

    def document(self, organization_id: str, document_id: str) -> Document | None:
        return self.documents.get((organization_id, document_id))

    def way_up(self, organization_id: str, folder_id: str) -> Way:
        kept = self.kept.ways.get((organization_id, folder_id))
        return _NO_WAY if kept is None else kept.way

    def any_grants(self, organization_id: str, user_id: str, document_id: str | None, folder_id: str | None) -> bool:
        person = self.people.get((organization_id, user_id))
        if person is None:
            return False
        if person.is_crowded:
            return True
        groups = person.groups
        if document_id is not None:
            if document_id in person.own_documents:
                return True
            if groups:
                rows = self.document_grants.get((organization_id, document_id), ())
                if rows is None or any(row[0] in groups for row in rows):
                    return True
        kept = None if folder_id is None else self.kept.ways.get((organization_id, folder_id))
        if kept is None:
            return False
        if person.own_folders and not person.own_folders.keys().isdisjoint(kept.folder_ids):
            return True
        return bool(groups) and (kept.groups is None or not groups.isdisjoint(kept.groups))

    def grants(self, organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        person = self.people.get((organization_id, user_id))
        if person is None:
            return ()
        groups, of_groups = person.groups, []
        if level == "folder":
            own = person.own_folders.get(resource_id)
            place = (organization_id, resource_id, "")
            grants = self.kept.folder_grants.get((organization_id, resource_id)) or ()
            of_groups = [grant for grant in grants if grant.organization_user_group_id in groups]
        else:
            own = person.own_documents.get(resource_id)
            place = (organization_id, "", resource_id)
            rows = self.document_grants.get((organization_id, resource_id)) or ()
            of_groups = [group_grant(organization_id, None, resource_id, row) for row in rows if row[0] in groups]
        found = [] if own is None else [own_grant(organization_id, user_id, own)]
        found.extend(of_groups)
        found.extend(
            grant
            for grant in self.exact_grants.get(place, ())
            if grant.user_id == user_id or grant.organization_user_group_id in groups
        )
        return found

    def context_grants(self, organization_id: str, user_id: str) -> Sequence[ContextGrant]:
        person = self.people.get((organization_id, user_id))
        if person is None:
            return ()
        return [
            grant
            for grant in self.context_rows.get(organization_id, ())
            if grant.user_id == user_id or grant.organization_user_group_id in person.groups
        ]

    def group_path(self, organization_id: str, user_id: str, group_id: str) -> Sequence[GroupMember]:
        person = self.people.get((organization_id, user_id))
        came_from = self.kept.reached(organization_id, () if person is None else person.direct_groups)
        if group_id not in came_from:
            return ()
        path: list[GroupMember] = []
        reached = group_id
        while (member := came_from[reached]) is not None:
            path.append(
                GroupMember(organization_id=organization_id, organization_user_group_id=reached, member_group_id=member)
            )
            reached = member
        path.append(GroupMember(organization_id=organization_id, organization_user_group_id=reached, user_id=user_id))
        return path[::-1]
