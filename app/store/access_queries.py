# ruff: noqa: S608 - every part of these texts is written in this module; what a caller asks for travels as a parameter
"""How is what a batch of questions needs found in the tables of the access model, by index look-ups alone?

Eight statements at most, whatever the number of questions. Each takes its ids as one JSON parameter (``asked``) and
joins them, in this order, to the primary key or an index of a table:

==================  ============================================================================
statement           ``asked``
==================  ============================================================================
``revision``        (nothing)
``organizations``   ``[organization, …]``
``people``          ``{organization: [user, …]}``: users, memberships, group edges and own grants
``documents``       ``{organization: {"f": [], "d": [document, …]}}``: documents, and the grants of groups on them
``folders``         ``{organization: [folder, …]}``
``level_grants``    ``{organization: {"f": [folder, …], "d": [document, …]}}``
``exact_grants``    ``{organization: {user: {"f": [folder, …], "d": [document, …],
                    "gf": [folder, …], "gd": [document, …], "g": [group, …]}}}``
``context_grants``  ``{organization: {user: {"g": [group, …], "a": {document: [{field: value}, …]}}}}``
==================  ============================================================================

The group edges are the memberships that lead from the users to all groups above them, ``folders`` with the
asked folders and all above them; ``UNION`` ends the recursion where groups or folders lead back into themselves.

Own grants are those of a user, ``level_grants`` those of groups on a folder or document, where there are no
more than ``FEW``; where there are more, a single row without a role stands for them. There ``exact_grants``
looks up every holder at every level by the whole primary key: the user's own at ``f`` and ``d``, his groups' at ``gf``
and ``gd``. So neither a user, a group nor a folder with many grants is ever read through.
"""

from functools import cache
from typing import Generic, NamedTuple, TypeVar

FEW = 32
"""How many grants of a user, or of groups on a level, are read in a row to spare a look-up per level or group."""


Each = TypeVar("Each")


class Statements(NamedTuple, Generic[Each]):
    """Something for each statement, in the order in which they are run."""

    revision: Each
    organizations: Each
    people: Each
    documents: Each
    folders: Each
    level_grants: Each
    exact_grants: Each
    context_grants: Each


@cache
def statements(dialect: str, *, names: bool) -> Statements[str]:
    """The statements for ``sqlite`` or ``postgresql``; with ``names`` the descriptive fields are read too."""
    return _written(_Sqlite() if dialect == "sqlite" else _PostgreSql(), "payload" if names else "NULL")


class _Sqlite:
    """JSON functions, and a CROSS JOIN keeps the order of a join."""

    asked = ":asked"
    at_first = ""

    def strings(self, array: str, name: str) -> str:
        return f"json_each({array}) AS {name}"

    def members(self, json_object: str) -> str:
        return f"json_each({json_object})"

    def part(self, json_object: str, key: str) -> str:
        return f"{json_object}, '$.{key}'"

    def look_up(self, table: str, condition: str) -> str:
        return f"CROSS JOIN {table} WHERE {condition}"

    def of_groups(self) -> str:
        # The primary key would do as well, at the price of reading the grants to users that stand between.
        return "access_grant INDEXED BY ix_access_grant_of_groups"

    def gathered(self, row: str) -> str:
        return f"json_group_array(json_array({row}))"


class _PostgreSql:
    """The same; OFFSET 0 keeps the planner from turning look-ups into a hash join over the whole table."""

    asked = "CAST(%(asked)s AS jsonb)"
    # For this transaction alone. The planner cannot know how little the parameters hold: compiling plans would take a
    # thousand times as long as running them, and a bitmap would be made of all grants of a user to take the first few.
    at_first = ", set_config('jit', 'off', true), set_config('enable_bitmapscan', 'off', true)"

    def strings(self, array: str, name: str) -> str:
        return f"jsonb_array_elements_text({array}) AS {name}(value)"

    def members(self, json_object: str) -> str:
        return f"jsonb_each({json_object})"

    def part(self, json_object: str, key: str) -> str:
        return f"{json_object} -> '{key}'"

    def look_up(self, table: str, condition: str) -> str:
        return f"CROSS JOIN LATERAL (SELECT * FROM {table} WHERE {condition} OFFSET 0) AS {table}"

    def of_groups(self) -> str:
        return "access_grant"

    def gathered(self, row: str) -> str:
        return f"CAST(COALESCE(json_agg(json_build_array({row})), '[]') AS text)"


def _written(db: _Sqlite | _PostgreSql, payload: str) -> Statements[str]:
    # Every part of these texts stands in this module; nothing of a caller's is ever put into them.
    ids = f"WITH asked(id) AS (SELECT i.value FROM {db.strings(db.asked, 'i')})"
    organizations = f"{db.members(db.asked)} AS o"
    pairs = f"asked(organization_id, id) AS (SELECT o.key, i.value FROM {organizations}, {db.strings('o.value', 'i')})"
    listed = db.strings(db.part("o.value", "d"), "i")
    documents = f"asked(organization_id, id) AS (SELECT o.key, i.value FROM {organizations}, {listed})"
    revision = f"""SELECT revision, created_at{db.at_first} FROM access_revision
            WHERE revision = (SELECT MAX(revision) FROM access_revision)"""
    of_organizations = f"""{ids}
            SELECT organization_id, access_type, disabled, {payload}
            FROM asked {db.look_up("access_organization", "organization_id = asked.id")}"""
    of_documents = f"""WITH {documents}
            SELECT access_document.organization_id, document_id, folder_id, access_type, {payload}
            FROM asked {_in_organization(db, "access_document", "asked", "document_id = asked.id")}"""
    level_grants = _gathered(db, _level_grants(db), 7)
    return Statements(
        revision=_gathered(db, revision, 2),
        organizations=_gathered(db, of_organizations, 4),
        people=_together(
            _gathered(db, _users(db, pairs, payload), 3),
            _gathered(db, _memberships(db, pairs), 4),
            _gathered(db, _group_edges(db, pairs), 4),
            _gathered(db, _own_grants(db, pairs), 7),
        ),
        documents=_together(_gathered(db, of_documents, 5), level_grants),
        folders=_gathered(db, _folders(db, pairs, payload), 5),
        level_grants=level_grants,
        exact_grants=_gathered(db, _exact_grants(db), 7),
        context_grants=_gathered(db, _context_grants(db), 7),
    )


def _gathered(db: _Sqlite | _PostgreSql, text: str, columns: int) -> str:
    """The statement, which has so many columns, with its rows as one JSON text.

    Drivers make Python objects row by row, and slowly at that. (Python's SQLite driver also lets another thread run
    after every row.)
    """
    row = ", ".join(f"c{number}" for number in range(columns))
    return f"WITH answer({row}) AS ({text}) SELECT {db.gathered(row)} FROM answer"


def _together(*texts: str) -> str:
    """Several statements as one that answers with a JSON list of their answers."""
    return "SELECT '[' || " + " || ',' || ".join(f"({text})" for text in texts) + " || ']'"


def _users(db: _Sqlite | _PostgreSql, pairs: str, payload: str) -> str:
    return f"""WITH {pairs}
        SELECT user_id, disabled, {payload}
        FROM asked {db.look_up("access_user", "user_id = asked.id")}"""


def _memberships(db: _Sqlite | _PostgreSql, pairs: str) -> str:
    return f"""WITH {pairs}
        SELECT access_membership.organization_id, user_id, access_role, expires_at
        FROM asked {_in_organization(db, "access_membership", "asked", "user_id = asked.id")}"""


def _group_edges(db: _Sqlite | _PostgreSql, pairs: str) -> str:
    above = "access_group_member.member_group_id = edge.organization_user_group_id"
    return f"""WITH RECURSIVE {pairs},
        edge(organization_id, organization_user_group_id, user_id, member_group_id) AS (
            SELECT access_group_member.organization_id, organization_user_group_id, user_id, CAST('' AS VARCHAR)
            FROM asked {_in_organization(db, "access_group_member", "asked", "user_id = asked.id")}
            UNION
            SELECT access_group_member.organization_id, access_group_member.organization_user_group_id,
                CAST('' AS VARCHAR), access_group_member.member_group_id
            FROM edge {_in_organization(db, "access_group_member", "edge", above)})
        SELECT organization_id, organization_user_group_id, user_id, member_group_id FROM edge"""


def _in_organization(db: _Sqlite | _PostgreSql, table: str, outer: str, condition: str) -> str:
    return db.look_up(table, f"{table}.organization_id = {outer}.organization_id AND {condition}")


def _folders(db: _Sqlite | _PostgreSql, pairs: str, payload: str) -> str:
    above = "access_folder.folder_id = chain.parent_folder_id AND chain.parent_folder_id <> ''"
    columns = ", ".join(f"access_folder.{name}" for name in ("organization_id", "folder_id", "parent_folder_id"))
    described = f"access_folder.access_type, {'access_folder.payload' if payload == 'payload' else payload}"
    return f"""WITH RECURSIVE {pairs},
        chain(organization_id, folder_id, parent_folder_id, access_type, payload) AS (
            SELECT {columns}, {described}
            FROM asked {_in_organization(db, "access_folder", "asked", "folder_id = asked.id")}
            UNION
            SELECT {columns}, {described}
            FROM chain {_in_organization(db, "access_folder", "chain", above)})
        SELECT organization_id, folder_id, parent_folder_id, access_type, payload FROM chain"""


_GRANT = """access_grant.organization_id, access_grant.folder_id, access_grant.document_id, access_grant.user_id,
            access_grant.organization_user_group_id, access_grant.access_role, access_grant.expires_at"""


def _own_grants(db: _Sqlite | _PostgreSql, pairs: str) -> str:
    one_more = f"""SELECT 1 FROM access_grant
                WHERE access_grant.user_id = asked.id AND access_grant.organization_id = asked.organization_id
                LIMIT 1 OFFSET {FEW}"""
    of_user = """access_grant.user_id = person.user_id AND access_grant.organization_id = person.organization_id
            AND person.crowd IS NULL"""
    return f"""WITH {pairs},
        person(organization_id, user_id, crowd) AS (SELECT organization_id, id, ({one_more}) FROM asked)
        SELECT {_GRANT} FROM person {db.look_up("access_grant", of_user)}
        UNION ALL
        SELECT organization_id, '', '', user_id, '', '', NULL FROM person WHERE crowd = 1"""


def _level_grants(db: _Sqlite | _PostgreSql) -> str:
    of_groups = """access_grant.organization_id = {0}.organization_id AND access_grant.folder_id = {0}.folder_id
                AND access_grant.document_id = {0}.document_id AND access_grant.user_id = ''"""
    one_more = f"SELECT 1 FROM {db.of_groups()} WHERE {of_groups.format('place')} LIMIT 1 OFFSET {FEW}"
    organizations = f"{db.members(db.asked)} AS o"
    return f"""WITH place(organization_id, folder_id, document_id) AS (
            SELECT o.key, i.value, '' FROM {organizations}, {db.strings(db.part("o.value", "f"), "i")}
            UNION ALL
            SELECT o.key, '', i.value FROM {organizations}, {db.strings(db.part("o.value", "d"), "i")}),
        level(organization_id, folder_id, document_id, crowd) AS (
            SELECT organization_id, folder_id, document_id, ({one_more}) FROM place)
        SELECT {_GRANT} FROM level {db.look_up(db.of_groups(), of_groups.format("level") + " AND level.crowd IS NULL")}
        UNION ALL
        SELECT organization_id, folder_id, document_id, '', '', '', NULL FROM level WHERE crowd = 1"""


def _exact_grants(db: _Sqlite | _PostgreSql) -> str:
    users = f"{db.members(db.asked)} AS o, {db.members('o.value')} AS u"

    def listed(key: str, name: str) -> str:
        return db.strings(db.part("u.value", key), name)

    wanted = " AND ".join(
        f"access_grant.{name} = wanted.{name}"
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
        SELECT {_GRANT} FROM wanted {db.look_up("access_grant", wanted)}"""


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
                f"access_context_grant.{name} = wanted.{name}"
                for name in ("organization_id", "user_id", "organization_user_group_id", "field")
            ),
            "access_context_grant.value IN (wanted.value, '*')",
            "access_context_grant.document_id IN (wanted.document_id, '')",
        ]
    )
    return f"""WITH item(organization_id, user_id, parts, document_id, field, value) AS (
            SELECT o.key, u.key, u.value, d.key, f.key, f.value FROM {users}, {questions}),
        wanted(organization_id, user_id, organization_user_group_id, field, value, document_id) AS (
            SELECT organization_id, user_id, '', field, value, document_id FROM item
            UNION
            SELECT organization_id, '', g.value, field, item.value, document_id
            FROM item, {db.strings(db.part("item.parts", "g"), "g")})
        SELECT access_context_grant.organization_id, access_context_grant.user_id,
            access_context_grant.organization_user_group_id, access_context_grant.field, access_context_grant.value,
            access_context_grant.document_id, expires_at
        FROM wanted {db.look_up("access_context_grant", wanted)}"""
