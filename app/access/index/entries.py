"""Reads the entries of the index from the access model: all of them, or those that changed after a revision.

The layout: ``app.access.index.layout``. The changes: ``app.access.refresh.change_log``.
"""

# ruff: noqa: S608 - these texts consist of constants

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, TextClause

from app.access.index.file import IndexWriter
from app.access.index.layout import (
    CONTEXT_GRANT,
    DOCUMENT,
    FOLDER,
    GROUPS_OF_GROUP,
    GROUPS_OF_USER,
    MAX_LISTED,
    MEMBERSHIP,
    ORGANIZATION,
    OWN_GRANTS,
    SEPARATOR,
    SINGLE_KIND,
    USER,
    entry_key,
    pair_key,
)
from app.foundation.database.statements import run, statement

_BATCH_ROWS = 5_000


def _role_and_end(row: str) -> str:
    return f"substr({row}.access_role, 1, 1) || COALESCE(CAST({row}.expires_at AS TEXT), '')"


_GROUP_GRANT = f"@escaped(g.organization_user_group_id) || @separator || {_role_and_end('g')}"
_OWN_GRANT = f"""
CASE WHEN g.folder_id <> '' THEN 'f' || @escaped(g.folder_id) ELSE 'd' || @escaped(g.document_id) END
  || @separator || {_role_and_end("g")}"""
_ON_FOLDER = "g.folder_id = {id} AND g.document_id = '' AND g.user_id = ''"
_ON_DOCUMENT = "g.folder_id = '' AND g.document_id = {id} AND g.user_id = ''"

# Each statement returns two ids, a value, and a list of grants or NULL. ``{rows}`` is the table, or its changed rows.
_ORGANIZATIONS = """
SELECT t.organization_id, '',
  substr(t.access_type, 1, 1) || @separator || CASE WHEN t.disabled THEN '1' ELSE '' END, NULL
FROM {rows} t
"""
_USERS = """
SELECT '', t.user_id, CASE WHEN t.disabled THEN '1' ELSE '' END, NULL FROM {rows} t
"""
_MEMBERSHIPS = f"SELECT t.organization_id, t.user_id, {_role_and_end('t')}, NULL FROM {{rows}} t"
_GROUPS = """
SELECT t.organization_id, t.organization_user_group_id, COALESCE((
  SELECT @joined(above.item) FROM (
    SELECT @escaped(m.organization_user_group_id) AS item FROM model_group_member m
    WHERE m.organization_id = t.organization_id AND m.member_group_id = t.organization_user_group_id) AS above), ''),
  NULL
FROM {rows} t
"""


def _resources(item: str, above: str, grants_on_item: str) -> str:
    return f"""
SELECT t.organization_id, t.{item}, substr(t.access_type, 1, 1) || @separator || @escaped(t.{above}), (
  SELECT @joined(listed.item) FROM (
    SELECT {_GROUP_GRANT} AS item FROM model_grant g @by(ix_model_grant_of_groups)
    WHERE g.organization_id = t.organization_id AND {grants_on_item.format(id=f"t.{item}")} LIMIT :limit) AS listed)
FROM {{rows}} t
"""


_USERS_GROUPS = """
SELECT t.organization_id, t.user_id, @joined(t.item), NULL FROM (
  SELECT m.organization_id, m.user_id, @escaped(m.organization_user_group_id) AS item
  FROM {rows} m WHERE m.user_id <> '') AS t
GROUP BY t.organization_id, t.user_id
"""
_OWN_GRANTS = f"""
SELECT t.organization_id, t.user_id, NULL, @joined(t.item) FROM (
  SELECT g.organization_id, g.user_id, {_OWN_GRANT} AS item FROM {{rows}} g WHERE g.user_id <> '') AS t
GROUP BY t.user_id, t.organization_id
"""
_CONTEXT_GRANTS = """
SELECT t.organization_id, t.user_id, t.organization_user_group_id, t.field, t.value, t.document_id,
  COALESCE(CAST(t.expires_at AS TEXT), '')
FROM {rows} t
"""

_CHANGED_IDS = "SELECT DISTINCT organization_id, item_id FROM access_change WHERE kind = '{kind}' AND revision > :after"
_CHANGED_ROWS = f"(SELECT r.* FROM ({_CHANGED_IDS}) AS k CROSS JOIN {{table}} r WHERE {{same}})"
# A user may have any number of grants, so a change reads no more of them than an entry lists.
_CHANGED_OWN_GRANTS = f"""
SELECT k.organization_id, k.item_id, NULL, (
  SELECT @joined(listed.item) FROM (
    SELECT {_OWN_GRANT} AS item FROM model_grant g
    WHERE g.user_id = k.item_id AND g.organization_id = k.organization_id LIMIT :limit) AS listed)
FROM ({_CHANGED_IDS.format(kind=OWN_GRANTS)}) AS k
"""


class _Queries(NamedTuple):
    """The queries for the entries of one kind."""

    all: str
    """The statement for all rows, or for the changed rows in place of the table."""
    table: str
    item: str = ""
    """The column of the second id. Empty: there is none."""
    organization: str = "organization_id"
    """The column of the first id. Empty: there is none."""
    changed: str = ""
    """The statement for changed rows. Empty: ``all``."""


_QUERIES: Mapping[str, _Queries] = {
    ORGANIZATION: _Queries(_ORGANIZATIONS, "model_organization"),
    USER: _Queries(_USERS, "model_user", "user_id", organization=""),
    MEMBERSHIP: _Queries(_MEMBERSHIPS, "model_membership", "user_id"),
    GROUPS_OF_USER: _Queries(_USERS_GROUPS, "model_group_member", "user_id"),
    GROUPS_OF_GROUP: _Queries(_GROUPS, "model_group", "organization_user_group_id"),
    FOLDER: _Queries(_resources("folder_id", "parent_folder_id", _ON_FOLDER), "model_folder", "folder_id"),
    DOCUMENT: _Queries(_resources("document_id", "folder_id", _ON_DOCUMENT), "model_document", "document_id"),
    OWN_GRANTS: _Queries(_OWN_GRANTS, "model_grant", changed=_CHANGED_OWN_GRANTS),
}

_SINGLE_GROUP_GRANTS = f"""
SELECT g.organization_user_group_id, {_role_and_end("g")} FROM model_grant g WHERE g.organization_id = :organization AND
"""
# The single grants of one user, folder or document.
_SINGLE_GRANTS: Mapping[str, str] = {
    OWN_GRANTS: f"""
SELECT CASE WHEN t.folder_id <> '' THEN 'f' || t.folder_id ELSE 'd' || t.document_id END, {_role_and_end("t")}
FROM model_grant t WHERE t.user_id = :item AND t.organization_id = :organization
""",
    FOLDER: _SINGLE_GROUP_GRANTS + _ON_FOLDER.format(id=":item"),
    DOCUMENT: _SINGLE_GROUP_GRANTS + _ON_DOCUMENT.format(id=":item"),
}
_ONE_GRANT = f"""
SELECT {_role_and_end("t")} FROM model_grant t
WHERE organization_id = :organization AND folder_id = :folder AND document_id = :document
  AND user_id = :user AND organization_user_group_id = :group
"""
_CHANGED_KEYS = """
SELECT kind, organization_id, item_id, detail FROM access_change WHERE revision > :after
GROUP BY kind, organization_id, item_id, detail ORDER BY kind, organization_id, item_id, detail
"""
_CHANGED_CONTEXT_GRANTS = """(
  SELECT r.* FROM (
    SELECT DISTINCT organization_id, item_id, detail FROM access_change WHERE kind = 'c' AND revision > :after) AS k
  CROSS JOIN model_context_grant r WHERE r.organization_id = k.organization_id AND r.user_id = k.item_id
    AND r.organization_user_group_id = @part(k.detail, 0) AND r.field = @part(k.detail, 1)
    AND r.value = @part(k.detail, 2) AND r.document_id = @part(k.detail, 3))"""

Entry = tuple[bytes, bytes]
"""A key and its value."""
Change = tuple[bytes, bytes | None]
"""A key and its new value. None: the entry is to be deleted."""


class _Holder(NamedTuple):
    """An entry that lists grants: the user, folder or document to which they belong."""

    kind: str
    organization_id: str
    item_id: str


def all_entries(connection: Connection) -> Iterator[Entry]:
    """All entries. The transaction must see one snapshot. Memory does not grow with the number of entries."""
    crowded: list[_Holder] = []
    for kind, queries in _QUERIES.items():
        yield from _listing_entries(
            connection, kind, statement(connection, queries.all, rows=queries.table), 0, crowded
        )
    yield from _context_entries(connection, "model_context_grant", 0)
    for holder in crowded:
        yield from _single_entries(connection, holder)


def changed_entries(connection: Connection, after: int, stored: IndexWriter) -> Iterator[Change]:
    """The entries that changed after the revision ``after``. ``stored``: those of the index before the change."""
    details: dict[_Holder, list[str]] = {}
    for kind, organization_id, item_id, detail in run(connection, _CHANGED_KEYS, {"after": after}):
        details.setdefault(_Holder(kind, organization_id, item_id), []).append(detail)
    for kind in _QUERIES:
        of_kind = {holder: texts for holder, texts in details.items() if holder.kind == kind}
        if of_kind:
            yield from _changed_entries_of_kind(connection, kind, of_kind, after, stored)
    context_keys = {
        entry_key(CONTEXT_GRANT, organization_id, user_id, *orjson.loads(detail))
        for (kind, organization_id, user_id), texts in details.items()
        if kind == CONTEXT_GRANT
        for detail in texts
    }
    if context_keys:
        yield from _with_deletions(context_keys, _context_entries(connection, _CHANGED_CONTEXT_GRANTS, after))


def _changed_entries_of_kind(
    connection: Connection, kind: str, details: Mapping[_Holder, Sequence[str]], after: int, stored: IndexWriter
) -> Iterator[Change]:
    """The changed entries of one kind. ``details``: changed entry → the other ids of its changed grants."""
    were_crowded = {holder for holder in details if _is_crowded(kind, stored.get(entry_key(*holder)))}
    crowded: list[_Holder] = []
    query = _changed_statement(connection, kind, _QUERIES[kind])
    entries = _listing_entries(connection, kind, query, after, crowded)
    yield from _with_deletions({entry_key(*holder) for holder in details}, entries)
    for holder in were_crowded.difference(crowded):
        prefix = entry_key(SINGLE_KIND[kind], holder.organization_id, holder.item_id) + SEPARATOR.encode()
        yield from ((key, None) for key, _ in list(stored.items_below(prefix)))
    for holder in crowded:
        if holder in were_crowded:
            yield from _changed_single_entries(connection, holder, details[holder])
        else:
            yield from _single_entries(connection, holder)


def _with_deletions(keys: set[bytes], entries: Iterable[Entry]) -> Iterator[Change]:
    """The entries, and deletions of the other keys."""
    for key, value in entries:
        keys.discard(key)
        yield key, value
    yield from ((key, None) for key in keys)


def _changed_statement(connection: Connection, kind: str, queries: _Queries) -> TextClause:
    if queries.changed:
        return statement(connection, queries.changed)
    columns = {"organization_id": queries.organization, "item_id": queries.item}
    same = " AND ".join(f"r.{column} = k.{name}" for name, column in columns.items() if column)
    return statement(connection, queries.all, rows=_CHANGED_ROWS.format(kind=kind, table=queries.table, same=same))


def _rows(connection: Connection, query: TextClause, **parameters: object) -> Iterator[Any]:
    yield from connection.execute(query, parameters, execution_options={"yield_per": _BATCH_ROWS})


def _listing_entries(
    connection: Connection, kind: str, query: TextClause, after: int, crowded: list[_Holder]
) -> Iterator[Entry]:
    """The entries of one kind. Adds those with too many grants to ``crowded``."""
    rows = _rows(connection, query, after=after, limit=MAX_LISTED + 1)
    for organization_id, item_id, value, grants in rows:
        if grants is not None:
            is_crowded = grants.count(SEPARATOR) >= 2 * MAX_LISTED
            if is_crowded:
                crowded.append(_Holder(kind, organization_id, item_id))
            parts = [*([] if value is None else [value]), "" if is_crowded else grants]
            yield pair_key(kind, organization_id, item_id), SEPARATOR.join(parts).encode()
        elif value is not None:
            yield pair_key(kind, organization_id, item_id), value.encode()


def _single_entries(connection: Connection, holder: _Holder) -> Iterator[Entry]:
    kind, organization_id, item_id = holder
    query = statement(connection, _SINGLE_GRANTS[kind])
    for other_id, value in _rows(connection, query, organization=organization_id, item=item_id):
        yield entry_key(SINGLE_KIND[kind], organization_id, item_id, other_id), value.encode()


def _changed_single_entries(connection: Connection, holder: _Holder, other_ids: Iterable[str]) -> Iterator[Change]:
    kind, organization_id, item_id = holder
    for other_id in filter(None, other_ids):
        resource = other_id if kind == OWN_GRANTS else kind + item_id
        parameters = {
            "organization": organization_id,
            "folder": resource[1:] if resource[0] == FOLDER else "",
            "document": resource[1:] if resource[0] == DOCUMENT else "",
            "user": item_id if kind == OWN_GRANTS else "",
            "group": "" if kind == OWN_GRANTS else other_id,
        }
        value = run(connection, _ONE_GRANT, parameters).scalar()
        key = entry_key(SINGLE_KIND[kind], organization_id, item_id, other_id)
        yield key, None if value is None else value.encode()


def _context_entries(connection: Connection, source: str, after: int) -> Iterator[Entry]:
    for *ids, end in _rows(connection, statement(connection, _CONTEXT_GRANTS, rows=source), after=after):
        yield entry_key(CONTEXT_GRANT, *ids), end.encode()


def _is_crowded(kind: str, value: bytes | None) -> bool:
    if value is None or kind not in SINGLE_KIND:
        return False
    return value.decode().split(SEPARATOR)[0 if kind == OWN_GRANTS else 2 :] == [""]
