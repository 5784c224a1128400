"""What does the access model say about everything that a batch of questions touches, in one revision?

``load_view`` reads it in a fixed number of statements (see ``access_queries``), whatever the size of the batch, and
gives the ``AccessView`` that ``app.access.decide`` reads. ``AccessViewLoader`` does so in a read snapshot of its own,
and keeps the organizations, folders and groups that it read as long as the revision stays.

This is the hot path of the permission provider: statements go straight to the database driver.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from sqlalchemy import Connection, Engine

from app.access.decide import DecisionPolicy, Question
from app.access.records import (
    ContextGrant,
    Document,
    Folder,
    Grant,
    GroupMember,
    Level,
    Membership,
    Organization,
    User,
)
from app.database.engine import driver_snapshot
from app.store.access_queries import Statements, statements
from app.store.access_rows import (
    Row,
    context_grant_from_row,
    document_from_row,
    folder_from_row,
    grant_from_row,
    membership_from_row,
    organization_from_row,
    user_from_row,
)
from app.store.access_structure import NEVER_READ, Pair, Place, Stamp, Structure

Texts = Statements[str]
Run = Callable[[str, object], list[Row]]
"""Runs a statement with its JSON parameter."""


class Person:
    """A user in an organization."""

    __slots__ = ("direct_groups", "groups", "membership", "own")

    def __init__(self) -> None:
        self.membership: Membership | None = None
        self.own: dict[Place, Row] | None = {}
        """His own grants, as rows because few of them are ever asked for; None: too many to be read at once."""
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
        self._policy = policy
        self._names = names
        self._structure = Structure(NEVER_READ)

    def __call__(self, questions: Sequence[Question]) -> "SqlAccessView":
        with self.snapshot() as snapshot:
            return snapshot.view(questions)

    @contextmanager
    def snapshot(self) -> "Iterator[Snapshot]":
        """One revision of the access model for as long as the block takes."""
        with driver_snapshot(self._engine) as connection:
            yield Snapshot(
                _runner(connection), self._engine.dialect.name, self._policy, names=self._names, kept=self._kept
            )

    def _kept(self, stamp: Stamp) -> Structure:
        kept = self._structure
        if kept.stamp != stamp or kept.is_full():
            kept = Structure(stamp)
            if stamp != NEVER_READ:
                self._structure = kept
        return kept


class Snapshot:
    """The revision that a transaction sees, and views of it."""

    def __init__(
        self,
        run: Run,
        dialect: str,
        policy: DecisionPolicy,
        *,
        names: bool = False,
        kept: Callable[[Stamp], Structure] = Structure,
    ) -> None:
        self._texts = statements(dialect, names=names)
        self._run = run
        self._policy = policy
        in_force = run(self._texts.revision, None)
        self._structure = kept((in_force[0][0], in_force[0][1]) if in_force else NEVER_READ)

    @property
    def revision(self) -> int:
        """The revision's number; 0 before the directory was ever read."""
        return self._structure.stamp[0]

    def view(self, questions: Sequence[Question]) -> "SqlAccessView":
        """The view that answers ``questions``; it says nothing about what they do not touch."""
        view, texts, run = SqlAccessView(self._structure), self._texts, self._run
        if questions:
            _load_people(questions, view, texts, run)
            _load_resources(questions, view, texts, run, hints=self._policy.unknown_document == "inherit_folder")
            _load_grants(questions, view, texts, run)
            _load_context_grants(questions, view, texts, run)
        return view


def load_view(
    connection: Connection, questions: Sequence[Question], *, policy: DecisionPolicy, names: bool = False
) -> "SqlAccessView":
    """The view that answers ``questions`` under ``policy``, of the revision that ``connection``'s transaction sees.

    The view says nothing about what the questions do not touch. With ``names``, names and further fields are read too.
    """
    run = _runner(connection.connection.dbapi_connection)
    return Snapshot(run, connection.dialect.name, policy, names=names).view(questions)


def _runner(driver_connection: Any) -> Run:
    # For these statements SQLAlchemy's result machinery would cost more than they do.
    def run(text: str, asked: object) -> list[Row]:
        answer = driver_connection.execute(text, {"asked": _json(asked)}).fetchone()
        rows: list[Row] = orjson.loads(answer[0])
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
        asked.setdefault(organization_id, []).append(member_id)
    return asked


def _load_people(questions: Sequence[Question], view: "SqlAccessView", texts: Texts, run: Run) -> None:
    """The organizations and users that are asked for, with their memberships, groups and own grants."""
    kept, people = view.kept, view.people
    for question in questions:
        pair = (question.organization_id, question.user_id)
        if pair not in people:
            people[pair] = Person()
    organizations: dict[str, Organization | None] = dict.fromkeys(
        organization_id for organization_id, _ in people if organization_id not in kept.organizations
    )
    if organizations:
        found = run(texts.organizations, list(organizations))
        organizations.update((row[0], organization_from_row(row)) for row in found)
        kept.organizations.update(organizations)
    users, memberships, group_edges, own_grants = run(texts.people, _by_organization(people))
    view.users.update((row[0], user_from_row(row)) for row in users)
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
    for row in own_grants:
        person = people.get((row[0], row[3]), strangers)
        if not row[5]:
            person.own = None
        elif person.own is not None:
            person.own[row[0], row[1], row[2]] = row


def _load_resources(
    questions: Sequence[Question], view: "SqlAccessView", texts: Texts, run: Run, *, hints: bool
) -> None:
    """The documents that are asked for, and the folders up to the top."""
    documents: dict[Pair, None] = {}
    folders: dict[Pair, None] = {}
    for question in questions:
        pair = (question.organization_id, question.resource_id)
        if question.type == "folder":
            folders[pair] = None
        elif question.type != "organization":
            documents[pair] = None
            if hints and question.parent_folder_id is not None:
                folders[question.organization_id, question.parent_folder_id] = None
    if documents:
        asked = {name: {"f": [], "d": ids} for name, ids in _by_organization(documents).items()}
        found, grants = run(texts.documents, asked)
        _keep_level_grants(dict.fromkeys(((name, "", id_) for name, id_ in documents), ()), grants, view)
        for row in found:
            view.documents[row[0], row[1]] = document = document_from_row(row)
            if document.folder_id is not None:
                folders[row[0], document.folder_id] = None
    known = view.kept.folders
    _load_folders([pair for pair in folders if pair not in known], view.kept, texts, run)


def _load_folders(pairs: list[Pair], kept: Structure, texts: Texts, run: Run) -> None:
    if not pairs:
        return
    folders: dict[Pair, Folder | None] = dict.fromkeys(pairs)
    for row in run(texts.folders, _by_organization(folders)):
        folders[row[0], row[1]] = folder_from_row(row)
    for (organization_id, _), folder in list(folders.items()):
        if folder is not None and folder.parent_folder_id is not None:
            folders.setdefault((organization_id, folder.parent_folder_id), None)
    kept.folders.update(folders)


def _load_grants(questions: Sequence[Question], view: "SqlAccessView", texts: Texts, run: Run) -> None:
    """The grants of groups on the folders above, and those grants that are too many to be read at once."""
    asking = [
        (view.people[question.organization_id, question.user_id], question)
        for question in questions
        if question.type != "organization"
    ]
    kept = view.kept
    unknown: dict[Place, tuple[Grant, ...] | None] = {}
    settling: list[Pair] = []
    for person, question in asking:
        above = view.folder_above(question) if person.groups else None
        if above is not None and above not in kept.settled:
            settling.append(above)
            unknown.update((place, ()) for place in kept.way_up(*above) if place not in kept.group_grants)
    if unknown:
        _load_level_grants(unknown, view, texts, run)
    kept.settled.update(above for above in settling if above in kept.ways)
    some_are_crowded = kept.is_crowded or None in view.document_grants.values()
    crowded = [
        (person, question.user_id, view.way_up(question))
        for person, question in asking
        if person.own is None or (some_are_crowded and person.groups)
    ]
    if crowded:
        _load_exact(crowded, view, texts, run)


def _load_level_grants(
    unknown: dict[Place, tuple[Grant, ...] | None], view: "SqlAccessView", texts: Texts, run: Run
) -> None:
    """The grants of groups on these folders and documents."""
    asked: dict[str, dict[str, list[str]]] = {}
    for organization_id, folder_id, document_id in unknown:
        part = asked.setdefault(organization_id, {"f": [], "d": []})
        part["f" if folder_id else "d"].append(folder_id or document_id)
    _keep_level_grants(unknown, run(texts.level_grants, asked), view)


def _keep_level_grants(
    unknown: dict[Place, tuple[Grant, ...] | None], rows: Iterable[Row], view: "SqlAccessView"
) -> None:
    for row in rows:
        place = (row[0], row[1], row[2])
        unknown[place] = (*(unknown.get(place) or ()), grant_from_row(row)) if row[5] else None
    for place, grants in unknown.items():
        if place[1]:
            view.kept.group_grants[place] = grants
            view.kept.is_crowded |= grants is None
        else:
            view.document_grants[place] = grants


def _load_exact(
    steps: Iterable[tuple[Person, str, tuple[Place, ...]]], view: "SqlAccessView", texts: Texts, run: Run
) -> None:
    """The grants of those who have too many to be read at once, and of groups where there are too many."""
    asked: dict[str, dict[str, dict[str, dict[str, None]]]] = {}

    def wanted(place: Place, user_id: str, part: str) -> None:
        of_user = asked.setdefault(place[0], {}).setdefault(user_id, {"f": {}, "d": {}, "gf": {}, "gd": {}, "g": {}})
        if part:
            of_user["g"] = dict.fromkeys(view.people[place[0], user_id].groups)
        of_user[part + ("f" if place[1] else "d")][place[1] or place[2]] = None

    for person, user_id, way in steps:
        for place in way:
            if person.own is None:
                wanted(place, user_id, "")
            if person.groups and view.group_grants(place) is None:
                wanted(place, user_id, "g")
    lists = {
        organization_id: {user_id: {part: list(ids) for part, ids in parts.items()} for user_id, parts in users.items()}
        for organization_id, users in asked.items()
    }
    if not lists:
        return
    for row in run(texts.exact_grants, lists):
        found = view.exact_grants.setdefault((row[0], row[1], row[2]), [])
        grant = grant_from_row(row)
        if grant not in found:
            found.append(grant)


def _load_context_grants(questions: Sequence[Question], view: "SqlAccessView", texts: Texts, run: Run) -> None:
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

    What begins with a small letter and is no method of the port is for the functions above, which fill it.
    """

    __slots__ = ("context_rows", "document_grants", "documents", "exact_grants", "kept", "people", "users")

    def __init__(self, kept: Structure) -> None:
        self.kept = kept
        self.users: dict[str, User] = {}
        self.people: dict[Pair, Person] = {}
        self.documents: dict[Pair, Document] = {}
        self.document_grants: dict[Place, tuple[Grant, ...] | None] = {}
        """The grants of groups on a document; None: too many to be read at once."""
        self.exact_grants: dict[Place, list[Grant]] = {}
        self.context_rows: dict[str, list[ContextGrant]] = {}

    def way_up(self, question: Question) -> tuple[Place, ...]:
        """Where grants that reach what is asked for may stand: it and the folders above it, as far as known."""
        organization_id = question.organization_id
        if question.type == "folder":
            return self.kept.way_up(organization_id, question.resource_id)
        above = self.folder_above(question)
        folders = () if above is None else self.kept.way_up(*above)
        if (organization_id, question.resource_id) not in self.documents:
            return folders
        return ((organization_id, "", question.resource_id), *folders)

    def folder_above(self, question: Question) -> Pair | None:
        """Where the way up through folders begins: at the one asked for, or at the one that holds the document."""
        organization_id = question.organization_id
        if question.type == "folder":
            return organization_id, question.resource_id
        document = self.documents.get((organization_id, question.resource_id))
        above = question.parent_folder_id if document is None else document.folder_id
        return None if above is None else (organization_id, above)

    def group_grants(self, place: Place) -> tuple[Grant, ...] | None:
        """The grants of groups that stand there; None: too many to be read at once."""
        return (self.kept.group_grants if place[1] else self.document_grants).get(place, ())

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

    def folder(self, organization_id: str, folder_id: str) -> Folder | None:
        return self.kept.folders.get((organization_id, folder_id))

    def document(self, organization_id: str, document_id: str) -> Document | None:
        return self.documents.get((organization_id, document_id))

    def grants(self, organization_id: str, level: Level, resource_id: str, user_id: str) -> Sequence[Grant]:
        person = self.people.get((organization_id, user_id))
        if person is None:
            return ()
        if level == "folder":
            place = (organization_id, resource_id, "")
            of_groups = self.kept.group_grants.get(place, ())
        else:
            place = (organization_id, "", resource_id)
            of_groups = self.document_grants.get(place, ())
        row = None if person.own is None else person.own.get(place)
        if not of_groups and not self.exact_grants:
            return () if row is None else (grant_from_row(row),)
        candidates = (*(of_groups or ()), *self.exact_grants.get(place, ()))
        found = [
            grant
            for grant in candidates
            if grant.user_id == user_id or grant.organization_user_group_id in person.groups
        ]
        return found if row is None else [grant_from_row(row), *found]

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
