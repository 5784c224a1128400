"""Loads the view of a batch of questions from the database.

A batch of any size takes a fixed number of statements (``app.access.view.queries``). ``AccessViewLoader`` reads in a
snapshot of its own, and caches organizations, folders and groups as long as the revision stays.

This is the hot path of the permission provider, so statements bypass SQLAlchemy. On PostgreSQL most batches need one
statement and no transaction, because the rest is cached. If a batch needs more statements, it compares their revisions;
if these differ, it is loaded again in a snapshot.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from app.access.decision.decide import DecisionPolicy, PermissionRequest
from app.access.records import Grant
from app.access.view.cache import NEVER_READ, Pair, Stamp, Structure
from app.access.view.queries import (
    CONNECTION_SETTINGS,
    MAX_INLINE_GRANTS,
    TRANSACTION_SETTINGS,
    Statements,
    direct_statements,
    statements,
)
from app.access.view.rows import (
    Row,
    context_grant_from_row,
    document_from_row,
    folder_from_row,
    grant_from_row,
    group_grant,
    membership_from_row,
    organization_from_row,
    user_from_row,
)
from app.access.view.sql_view import OrganizationUser, SqlAccessView
from app.foundation.database.direct import DirectConnections
from app.foundation.database.engine import driver_snapshot, is_sqlite

Texts = Statements[str]
Run = Callable[[str, object], list[Any]]
"""Runs a statement with its JSON parameter."""


class AccessViewLoader:
    """Loads the view of a batch in a snapshot of its own, and caches the structure as long as the revision stays.

    With ``names`` records contain their names and extra fields; otherwise those are empty, and decisions do not need
    them. Database errors are SQLAlchemy's.
    """

    def __init__(self, engine: Engine, policy: DecisionPolicy, *, names: bool = False) -> None:
        self._engine = engine
        self._hints = policy.unknown_document == "inherit_folder"
        self._texts = statements(engine.dialect.name, with_payload=names)
        self._direct: DirectConnections | None = None
        if not names and not is_sqlite(engine):
            self._direct = DirectConnections(engine, CONNECTION_SETTINGS)
        self._transaction_settings = TRANSACTION_SETTINGS[engine.dialect.name]
        self._structure = Structure(NEVER_READ)

    def __call__(self, questions: Sequence[PermissionRequest]) -> SqlAccessView:
        if self._direct is not None:
            try:
                with self._direct.cursor() as cursor:
                    return _load(
                        questions, direct_statements(), _checked(cursor), self._structure_at, hints=self._hints
                    )
            except _RevisionMovedError:
                pass
            except DBAPIError as error:
                # The connection may have been lost long ago. A snapshot tests its connection before use.
                if not error.connection_invalidated:
                    raise
        with driver_snapshot(self._engine, self._transaction_settings) as connection:
            return _load(questions, self._texts, _runner(connection), self._structure_at, hints=self._hints)

    def _structure_at(self, stamp: Stamp) -> Structure:
        structure = self._structure
        if structure.stamp != stamp or structure.is_full():
            structure = Structure(stamp)
            if stamp != NEVER_READ:
                self._structure = structure
        return structure


def load_view(
    connection: Connection, asked: Sequence[PermissionRequest], *, policy: DecisionPolicy, names: bool = False
) -> SqlAccessView:
    """The view of the revision that the transaction of ``connection`` sees, without a cache."""
    dialect = connection.dialect.name
    driver: Any = connection.connection.dbapi_connection
    if TRANSACTION_SETTINGS[dialect]:
        driver.execute(TRANSACTION_SETTINGS[dialect])
    hints = policy.unknown_document == "inherit_folder"
    return _load(asked, statements(dialect, with_payload=names), _runner(driver), Structure, hints=hints)


def _runner(driver_connection: Any) -> Run:
    # SQLAlchemy's result objects would take longer than these statements.
    def run(text: str, asked: object) -> list[Any]:
        answer = driver_connection.execute(text, {"asked": _json(asked)}).fetchone()
        rows: list[Any] = orjson.loads(answer[0])
        return rows

    return run


class _RevisionMovedError(Exception):
    """Two statements saw different revisions of the access model."""


def _checked(cursor: Any) -> Run:
    """Runs ``direct_statements``, the batch first; raises ``_RevisionMovedError``."""
    revision: Any = None

    def run(text: str, asked: object) -> list[Any]:
        nonlocal revision
        answer: list[Any] = orjson.loads(cursor.execute(text, [_json(asked)], prepare=True).fetchone()[0])
        if revision is None:
            revision = answer[0]
            return answer
        seen, rows = answer
        if seen != revision:
            raise _RevisionMovedError
        found: list[Any] = rows
        return found

    return run


def _json(asked: object) -> str:
    try:
        text = orjson.dumps(asked).decode()
    except TypeError:  # half a surrogate pair, which no stored text contains
        return orjson.dumps(_storable(asked)).decode()
    return orjson.dumps(_storable(asked)).decode() if "\\u0000" in text else text


def _storable(value: Any) -> Any:
    """The value with replacements for characters that databases refuse.

    An id with a replacement finds a wrong row or none. A wrong row does no harm: it is stored under its own id, which
    no question contains.
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
    questions: Sequence[PermissionRequest],
    texts: Texts,
    run: Run,
    structure_at: Callable[[Stamp], Structure],
    *,
    hints: bool,
) -> SqlAccessView:
    people: dict[Pair, OrganizationUser] = {}
    documents: dict[Pair, None] = {}
    above: dict[Pair, None] = {}
    """Folders whose ancestry is needed."""
    has_context = False
    for question in questions:
        organization_id, kind = question.organization_id, question.type
        pair = (organization_id, question.user_id)
        if pair not in people:
            people[pair] = OrganizationUser()
        if kind == "folder":
            above[organization_id, question.resource_id] = None
        elif kind != "organization":
            documents[organization_id, question.resource_id] = None
            has_context |= kind == "context"
            if hints and question.parent_folder_id is not None:
                above[organization_id, question.parent_folder_id] = None
    asked = {"u": _by_organization(people), "d": _by_organization(documents)}
    in_force, users, memberships, group_edges, own_grants, found = run(texts.batch, asked)
    view = SqlAccessView(structure_at((in_force[0][0], in_force[0][1]) if in_force else NEVER_READ), people)
    for row in users:
        view.users[row[0]] = user_from_row(row)
    _store_people(view, memberships, group_edges, own_grants)
    _store_documents(view, found, above)
    _load_organizations(view.structure, asked["u"], texts, run)
    _load_ancestries([pair for pair in above if pair not in view.structure.ancestries], view.structure, texts, run)
    if view.is_crowded():
        _load_exact(questions, view, texts, run)
    if has_context:
        _load_context_grants(questions, view, texts, run)
    return view


def _store_people(
    view: SqlAccessView, memberships: Iterable[Row], group_edges: Iterable[Row], own_grants: Iterable[Row]
) -> None:
    structure, people = view.structure, view.people
    others = OrganizationUser()  # for the wrong rows of ``_storable``
    for row in memberships:
        people.get((row[0], row[1]), others).membership = membership_from_row(row)
    direct: dict[Pair, list[str]] = {}
    above: dict[Pair, list[str]] = {}
    for organization_id, group_id, user_id, member_group_id in group_edges:
        edges, member_id = (direct, user_id) if user_id else (above, member_group_id)
        edges.setdefault((organization_id, member_id), []).append(group_id)
    structure.groups_above.update((pair, tuple(groups)) for pair, groups in above.items())
    for pair, groups in direct.items():
        if pair in people:
            people[pair].direct_groups = tuple(groups)
            people[pair].groups = frozenset(structure.reached(pair[0], groups))
    for organization_id, user_id, rows in own_grants:
        person = people.get((organization_id, user_id), others)
        if len(rows) > MAX_INLINE_GRANTS:
            person.is_crowded = True
            continue
        for row in rows:
            if row[0]:
                person.own_folders[row[0]] = row
            else:
                person.own_documents[row[1]] = row


def _store_documents(view: SqlAccessView, found: Iterable[Row], above: dict[Pair, None]) -> None:
    """Stores the documents, and adds their folders to ``above``."""
    for row in found:
        organization_id, document_id, folder_id, _, _, grants = row
        view.documents[organization_id, document_id] = document_from_row(row)
        if folder_id:
            above[organization_id, folder_id] = None
        if grants:
            view.document_grants[organization_id, document_id] = grants if len(grants) <= MAX_INLINE_GRANTS else None


def _load_organizations(structure: Structure, wanted: Iterable[str], texts: Texts, run: Run) -> None:
    # Unknown organizations are not cached: callers could invent any number of them.
    organizations = list(dict.fromkeys(name for name in wanted if name not in structure.organizations))
    if organizations:
        found = run(texts.organizations, organizations)
        structure.organizations.update((row[0], organization_from_row(row)) for row in found)


def _load_ancestries(pairs: list[Pair], structure: Structure, texts: Texts, run: Run) -> None:
    """Loads and caches folders, those above them, and the grants of groups on any of them."""
    if not pairs:
        return
    unknown = [pair for pair in pairs if pair not in structure.folders]
    if unknown:
        _load_folders(unknown, structure, texts, run)
    for organization_id, folder_id in pairs:
        structure.cache_ancestry(organization_id, structure.ancestry_of(organization_id, folder_id), folder_id)


def _load_folders(pairs: list[Pair], structure: Structure, texts: Texts, run: Run) -> None:
    rows = run(texts.folders, _by_organization(pairs))
    grants: dict[Pair, tuple[Grant, ...] | None] = {}
    for organization_id, folder_id, _, _, _, listed in rows:
        grants[organization_id, folder_id] = (
            tuple(group_grant(organization_id, folder_id, None, row) for row in listed)
            if len(listed) <= MAX_INLINE_GRANTS
            else None
        )
    folders = dict.fromkeys(pairs) | {(row[0], row[1]): folder_from_row(row) for row in rows}
    for (organization_id, _), folder in list(folders.items()):
        if folder is not None and folder.parent_folder_id is not None:
            folders.setdefault((organization_id, folder.parent_folder_id), None)
    # In this order: another thread that finds a folder finds its grants, too.
    structure.folder_grants.update(grants)
    structure.folders.update(folders)


def _load_exact(questions: Sequence[PermissionRequest], view: SqlAccessView, texts: Texts, run: Run) -> None:
    """Loads the grants of users who have too many to be read at once, and of groups on levels that have too many."""
    asked: dict[str, dict[str, dict[str, dict[str, None]]]] = {}

    def wanted(question: PermissionRequest, part: str, id_: str) -> None:
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


def _load_context_grants(questions: Sequence[PermissionRequest], view: SqlAccessView, texts: Texts, run: Run) -> None:
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
