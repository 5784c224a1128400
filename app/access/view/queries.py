"""The queries that load the records for a batch of questions, by index lookups alone.

At most five statements, for any number of questions. Each statement takes its ids as one JSON parameter (``asked``) and
joins them, in this order, to the primary key or an index of a table:

==================  ============================================================================
statement           ``asked``
==================  ============================================================================
``batch``           ``{"u": {organization: [user, …]}, "d": {organization: [document, …]}}``: the revision; users,
                    memberships, group edges and own grants; documents with the grants of groups on them
``organizations``   ``[organization, …]``
``folders``         ``{organization: [folder, …]}``: with the grants of groups on them
``exact_grants``    ``{organization: {user: {"f": [folder, …], "d": [document, …],
                    "gf": [folder, …], "gd": [document, …], "g": [group, …]}}}``
``context_grants``  ``{organization: {user: {"g": [group, …], "a": {document: [{field: value}, …]}}}}``
==================  ============================================================================

The group edges are the memberships from the users up to all their groups. ``folders`` returns the folders and all
above them. ``UNION`` ends the recursion in cycles.

At most ``MAX_INLINE_GRANTS + 1`` grants of a user, or of groups on one document or folder, are read. If there are so
many, ``exact_grants`` looks up each grant by its primary key: the user's own at ``f`` and ``d``, their groups' at
``gf`` and ``gd``. So no query reads all grants of a user, group or folder that has many.
"""

# ruff: noqa: S608 - the texts consist of parts of this module; ids are parameters

from functools import cache
from typing import Generic, NamedTuple, TypeVar

MAX_INLINE_GRANTS = 32
"""The maximum number of grants of a user, or of groups on one level, that are read with it. If there are more, each
grant is looked up by its key."""

T = TypeVar("T")


class Statements(NamedTuple, Generic[T]):
    """A value for each statement, in the order in which they are executed."""

    batch: T
    organizations: T
    folders: T
    exact_grants: T
    context_grants: T


TRANSACTION_SETTINGS = {
    "sqlite": "",
    # The planner does not know how few ids the parameters contain. Compiling plans would take a thousand times as long
    # as executing them, bitmaps would contain all grants of a user, and each recursion would clear a hash table of the
    # size of work_mem.
    "postgresql": "SET LOCAL jit = off; SET LOCAL enable_bitmapscan = off; SET LOCAL work_mem = '256kB'",
}
"""The settings of a transaction for these statements, by dialect."""

CONNECTION_SETTINGS = "; ".join(
    [
        TRANSACTION_SETTINGS["postgresql"].replace("LOCAL ", ""),
        "SET enable_seqscan = off",
        "SET plan_cache_mode = force_generic_plan",
    ]
)
"""The settings of a connection that executes these statements without a transaction. Plans are cached, so they must
consist of index lookups even if the tables are empty when they are made."""


@cache
def statements(dialect: str, *, with_payload: bool) -> Statements[str]:
    """The statements for ``sqlite`` or ``postgresql``; ``with_payload``: they also read the descriptive fields."""
    return _build(_Sqlite() if dialect == "sqlite" else _PostgreSql(), "payload" if with_payload else "NULL")


@cache
def direct_statements() -> Statements[str]:
    """The statements for PostgreSQL without a transaction, with ``$1`` for ``asked``.

    Each statement sees its own snapshot. All but the first return ``[revision, rows]``; results with the same revision
    belong together.
    """
    db = _PostgreSql("CAST($1 AS jsonb)")
    plain = _build(db, "NULL")
    revision = _as_json_rows(db, _REVISION, 2)
    return Statements(plain.batch, *(_as_json_list(revision, text) for text in plain[1:]))


_REVISION = """SELECT revision, created_at FROM access_revision
            WHERE revision = (SELECT MAX(revision) FROM access_revision)"""


class _Sqlite:
    """SQLite's JSON functions. CROSS JOIN fixes the order of a join."""

    asked = ":asked"

    def strings(self, array: str, name: str) -> str:
        return f"json_each({array}) AS {name}"

    def members(self, json_object: str) -> str:
        return f"json_each({json_object})"

    def part(self, json_object: str, key: str) -> str:
        return f"{json_object}, '$.{key}'"

    def look_up(self, table: str, condition: str) -> str:
        return f"CROSS JOIN {table} WHERE {condition}"

    def grants_of_groups(self) -> str:
        # By the primary key, it would read the grants to users as well.
        return "model_grant AS g INDEXED BY ix_model_grant_of_groups"

    def json_rows(self, row: str) -> str:
        return f"json_group_array(json_array({row}))"

    def nested(self, column: str) -> str:
        return f"json({column})"


class _PostgreSql:
    """PostgreSQL's JSON functions. OFFSET 0 stops the planner from replacing lookups by a hash join over the table."""

    def __init__(self, asked: str = "CAST(%(asked)s AS jsonb)") -> None:
        self.asked = asked

    def strings(self, array: str, name: str) -> str:
        return f"jsonb_array_elements_text({array}) AS {name}(value)"

    def members(self, json_object: str) -> str:
        return f"jsonb_each({json_object})"

    def part(self, json_object: str, key: str) -> str:
        return f"{json_object} -> '{key}'"

    def look_up(self, table: str, condition: str) -> str:
        return f"CROSS JOIN LATERAL (SELECT * FROM {table} WHERE {condition} OFFSET 0) AS {table}"

    def grants_of_groups(self) -> str:
        return "model_grant AS g"

    def json_rows(self, row: str) -> str:
        return f"CAST(COALESCE(json_agg(json_build_array({row})), '[]') AS text)"

    def nested(self, column: str) -> str:
        return f"CAST({column} AS json)"


def _build(db: _Sqlite | _PostgreSql, payload: str) -> Statements[str]:
    ids = f"WITH asked(id) AS (SELECT i.value FROM {db.strings(db.asked, 'i')})"
    people, documents, folders = _requested_pairs(db, "u"), _requested_pairs(db, "d"), _requested_pairs(db, "")
    of_organizations = f"""{ids}
            SELECT organization_id, access_type, disabled, {payload}
            FROM asked {db.look_up("model_organization", "organization_id = asked.id")}"""
    of_documents = f"""WITH {documents}
            SELECT model_document.organization_id, model_document.document_id, folder_id, access_type, {payload},
                {_group_grants(db, "model_document.organization_id", "''", "model_document.document_id")}
            FROM asked {_in_organization(db, "model_document", "asked", "document_id = asked.id")}"""
    return Statements(
        batch=_as_json_list(
            _as_json_rows(db, _REVISION, 2),
            _as_json_rows(db, _users(db, people, payload), 3),
            _as_json_rows(db, _memberships(db, people), 4),
            _as_json_rows(db, _group_edges(db, people), 4),
            _as_json_rows(db, _own_grants(db, people), 3, nested=2),
            _as_json_rows(db, of_documents, 6, nested=5),
        ),
        organizations=_as_json_rows(db, of_organizations, 4),
        folders=_as_json_rows(db, _folders(db, folders, payload), 6, nested=5),
        exact_grants=_as_json_rows(db, _exact_grants(db), 7),
        context_grants=_as_json_rows(db, _context_grants(db), 7),
    )


def _requested_pairs(db: _Sqlite | _PostgreSql, part: str) -> str:
    """The requested ids, with their organization. ``part``: the key of the parameter that contains them."""
    ids = db.members(db.part(db.asked, part) if part else db.asked)
    return f"asked(organization_id, id) AS (SELECT o.key, i.value FROM {ids} AS o, {db.strings('o.value', 'i')})"


def _as_json_rows(db: _Sqlite | _PostgreSql, text: str, columns: int, *, nested: int | None = None) -> str:
    """The statement with its rows as one JSON text. ``nested``: the number of a column that is already JSON.

    Drivers create Python objects slowly, row by row, and Python's SQLite driver releases the interpreter lock for each.
    """
    names = [f"c{number}" for number in range(columns)]
    row = ", ".join(db.nested(name) if number == nested else name for number, name in enumerate(names))
    return f"WITH answer({', '.join(names)}) AS ({text}) SELECT {db.json_rows(row)} FROM answer"


def _as_json_list(*texts: str) -> str:
    """One statement that returns a JSON list of the results of several."""
    return "SELECT '[' || " + " || ',' || ".join(f"({text})" for text in texts) + " || ']'"


def _users(db: _Sqlite | _PostgreSql, pairs: str, payload: str) -> str:
    return f"""WITH {pairs}
        SELECT user_id, disabled, {payload}
        FROM asked {db.look_up("model_user", "user_id = asked.id")}"""


def _memberships(db: _Sqlite | _PostgreSql, pairs: str) -> str:
    return f"""WITH {pairs}
        SELECT model_membership.organization_id, user_id, access_role, expires_at
        FROM asked {_in_organization(db, "model_membership", "asked", "user_id = asked.id")}"""


def _group_edges(db: _Sqlite | _PostgreSql, pairs: str) -> str:
    above = "model_group_member.member_group_id = edge.organization_user_group_id"
    # A group that does not exist has no members. As a subquery, both databases look it up by its key.
    exists = """(SELECT TRUE FROM model_group WHERE model_group.organization_id = model_group_member.organization_id
                AND model_group.organization_user_group_id = model_group_member.organization_user_group_id)"""
    return f"""WITH RECURSIVE {pairs},
        edge(organization_id, organization_user_group_id, user_id, member_group_id) AS (
            SELECT model_group_member.organization_id, organization_user_group_id, user_id, CAST('' AS VARCHAR)
            FROM asked {_in_organization(db, "model_group_member", "asked", f"user_id = asked.id AND {exists}")}
            UNION
            SELECT model_group_member.organization_id, model_group_member.organization_user_group_id,
                CAST('' AS VARCHAR), model_group_member.member_group_id
            FROM edge {_in_organization(db, "model_group_member", "edge", f"{above} AND {exists}")})
        SELECT organization_id, organization_user_group_id, user_id, member_group_id FROM edge"""


def _in_organization(db: _Sqlite | _PostgreSql, table: str, outer: str, condition: str) -> str:
    return db.look_up(table, f"{table}.organization_id = {outer}.organization_id AND {condition}")


def _folders(db: _Sqlite | _PostgreSql, pairs: str, payload: str) -> str:
    above = "model_folder.folder_id = chain.parent_folder_id AND chain.parent_folder_id <> ''"
    columns = ", ".join(f"model_folder.{name}" for name in ("organization_id", "folder_id", "parent_folder_id"))
    described = f"model_folder.access_type, {'model_folder.payload' if payload == 'payload' else payload}"
    return f"""WITH RECURSIVE {pairs},
        chain(organization_id, folder_id, parent_folder_id, access_type, payload) AS (
            SELECT {columns}, {described}
            FROM asked {_in_organization(db, "model_folder", "asked", "folder_id = asked.id")}
            UNION
            SELECT {columns}, {described}
            FROM chain {_in_organization(db, "model_folder", "chain", above)})
        SELECT organization_id, folder_id, parent_folder_id, access_type, payload,
            {_group_grants(db, "chain.organization_id", "chain.folder_id", "''")} FROM chain"""


def _group_grants(db: _Sqlite | _PostgreSql, organization_id: str, folder_id: str, document_id: str) -> str:
    """The grants of groups on one folder or document: ``[group, role, end]`` each."""
    return f"""(SELECT {db.json_rows("organization_user_group_id, access_role, expires_at")} FROM (
                SELECT g.organization_user_group_id, g.access_role, g.expires_at FROM {db.grants_of_groups()}
                WHERE g.organization_id = {organization_id} AND g.folder_id = {folder_id}
                    AND g.document_id = {document_id} AND g.user_id = '' LIMIT {MAX_INLINE_GRANTS + 1}) AS few)"""


def _own_grants(db: _Sqlite | _PostgreSql, pairs: str) -> str:
    few = db.json_rows("folder_id, document_id, access_role, expires_at")
    return f"""WITH {pairs}
        SELECT asked.organization_id, asked.id, (SELECT {few} FROM (
            SELECT g.folder_id, g.document_id, g.access_role, g.expires_at FROM model_grant AS g
            WHERE g.user_id = asked.id AND g.organization_id = asked.organization_id
            LIMIT {MAX_INLINE_GRANTS + 1}) AS few)
        FROM asked"""


_GRANT = """model_grant.organization_id, model_grant.folder_id, model_grant.document_id, model_grant.user_id,
            model_grant.organization_user_group_id, model_grant.access_role, model_grant.expires_at"""


def _exact_grants(db: _Sqlite | _PostgreSql) -> str:
    users = f"{db.members(db.asked)} AS o, {db.members('o.value')} AS u"

    def listed(key: str, name: str) -> str:
        return db.strings(db.part("u.value", key), name)

    wanted = " AND ".join(
        f"model_grant.{name} = wanted.{name}"
        for name in ("organization_id", "folder_id", "document_id", "user_id", "organization_user_group_id")
    )
    return f"""WITH wanted(organization_id, folder_id, document_id, user_id, organization_user_group_id) AS (
            SELECT o.key, i.value, '', u.key, '' FROM {users}, {listed("f", "i")}
            UNION ALL
            SELECT o.key, '', i.value, u.key, '' FROM {users}, {listed("d", "i")}
            UNION ALL
            SELECT o.key, i.value, '', '', g.value FROM {users}, {listed("gf", "i")}, {listed("g", "g")}
            UNION ALL
            SELECT o.key, '', i.value, '', g.value FROM {users}, {listed("gd", "i")}, {listed("g", "g")})
        SELECT {_GRANT} FROM wanted {db.look_up("model_grant", wanted)}"""


def _context_grants(db: _Sqlite | _PostgreSql) -> str:
    users = f"{db.members(db.asked)} AS o, {db.members('o.value')} AS u"
    if isinstance(db, _Sqlite):
        questions = "json_each(u.value, '$.a') AS d, json_each(d.value) AS q, json_each(q.value) AS f"
    else:
        questions = (
            "jsonb_each(u.value -> 'a') AS d, jsonb_array_elements(d.value) AS q(value), jsonb_each_text(q.value) AS f"
        )
    wanted = " AND ".join(
        [
            *(
                f"model_context_grant.{name} = wanted.{name}"
                for name in ("organization_id", "user_id", "organization_user_group_id", "field")
            ),
            "model_context_grant.value IN (wanted.value, '*')",
            "model_context_grant.document_id IN (wanted.document_id, '')",
        ]
    )
    return f"""WITH item(organization_id, user_id, parts, document_id, field, value) AS (
            SELECT o.key, u.key, u.value, d.key, f.key, f.value FROM {users}, {questions}),
        wanted(organization_id, user_id, organization_user_group_id, field, value, document_id) AS (
            SELECT organization_id, user_id, '', field, value, document_id FROM item
            UNION
            SELECT organization_id, '', g.value, field, item.value, document_id
            FROM item, {db.strings(db.part("item.parts", "g"), "g")})
        SELECT model_context_grant.organization_id, model_context_grant.user_id,
            model_context_grant.organization_user_group_id, model_context_grant.field, model_context_grant.value,
            model_context_grant.document_id, expires_at
        FROM wanted {db.look_up("model_context_grant", wanted)}"""
