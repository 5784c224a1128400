"""A sample application with a database of people, documents and shares. It evaluates access without Usher's code."""

from typing import Any

from sqlalchemy import Engine, text

USERS = ("ann", "bob")
DOCUMENTS = ("d1", "d2")
LOGINS = ("ann@acme.example", "bob@acme.example")
ROLES = ("viewer", "editor")

_TABLES = {
    "person": "name VARCHAR(64), login VARCHAR(64), off INTEGER",
    "member": "person VARCHAR(64), role VARCHAR(64)",
    "doc": "title VARCHAR(64), access VARCHAR(64), owner VARCHAR(64)",
    "share": "doc VARCHAR(64), person VARCHAR(64), role VARCHAR(64)",
    "invite": "doc VARCHAR(64), login VARCHAR(64), role VARCHAR(64)",
    "leaver": "person VARCHAR(64), has_left INTEGER",
}
_EVERY = "id VARCHAR(64) PRIMARY KEY, changed INTEGER NOT NULL, gone INTEGER NOT NULL"

_RECORDS = {
    "organizations": "SELECT 'acme' AS \"organizationId\", 'Acme' AS \"organizationName\", 0 AS changed, 0 AS gone",
    "users": (
        'SELECT id AS "userId", name, \'\' AS email, login AS "aliases", off AS "disabled", changed, gone FROM person'
    ),
    "memberships": (
        'SELECT id, \'acme\' AS "organizationId", person AS "userId", role AS "accessRole", changed, gone FROM member'
    ),
    "documents": (
        'SELECT \'acme\' AS "organizationId", id AS "documentId", title AS "documentName",'
        ' access AS "accessType", changed, gone FROM doc'
    ),
    "grants": (
        'SELECT id, \'acme\' AS "organizationId", doc AS "documentId", person AS "userId", NULL AS "userAlias",'
        ' role AS "accessRole", changed, gone FROM share'
        " UNION ALL SELECT id, 'acme', doc, NULL, login, role, changed, gone FROM invite"
        " UNION ALL SELECT id, 'acme', id, owner, NULL, 'editor', changed,"
        " CASE WHEN gone = 1 OR owner IS NULL THEN 1 ELSE 0 END FROM doc"
    ),
}
"""The name of a query whose rows are records → the query."""

_RULES: list[dict[str, Any]] = [
    {
        "from": "person",
        "aliases": ["it.login"],
        "user": {"userId": "it.id", "name": "it.name", "email": '""', "disabled": "it.off != 0"},
    },
    {
        "from": "member",
        "membership": {"organizationId": '"acme"', "userId": "it.person", "accessRole": "it.role"},
    },
    {
        "from": "doc",
        "document": {
            "organizationId": '"acme"',
            "documentId": "it.id",
            "documentName": "it.title",
            "accessType": "it.access",
        },
    },
    {
        "from": "doc",
        "when": "has(it.owner)",
        "grant": {
            "organizationId": '"acme"',
            "documentId": "it.id",
            "userId": "it.owner",
            "accessRole": '"editor"',
        },
    },
    {
        "from": "share",
        "grant": {
            "organizationId": '"acme"',
            "documentId": "it.doc",
            "userId": "it.person",
            "accessRole": "it.role",
        },
    },
    {
        "from": "invite",
        "grant": {
            "organizationId": '"acme"',
            "documentId": "it.doc",
            "userAlias": "it.login",
            "accessRole": "it.role",
        },
    },
]

_LEAVER = {"from": "leaver", "fill": {"userId": "it.person", "disabled": "it.has_left != 0"}}


Backup = tuple[int, dict[str, list[dict[str, Any]]]]
"""What ``Application.save`` returns."""


class Application:
    """The database. Each change increments the counter ``changed``; deleted rows stay, with ``gone``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed = 0
        with engine.begin() as connection:
            for name, columns in _TABLES.items():
                connection.execute(text(f"CREATE TABLE IF NOT EXISTS {name} ({_EVERY}, {columns})"))

    def begin(self) -> None:
        """The initial content: all people are members, documents are restricted, and nothing is shared."""
        with self._engine.begin() as connection:
            for name in _TABLES:
                connection.execute(text(f"DELETE FROM {name}"))
        for user in USERS:
            self.put("person", user, name=user, login=f"{user}@acme.example", off=0)
            self.put("member", user, person=user, role="editor")
        for document in DOCUMENTS:
            self.put("doc", document, title=document, access="restricted", owner=None)

    def put(self, table: str, row_id: str, **columns: object) -> None:
        """Inserts or updates a row, and clears ``gone``."""
        self._changed += 1
        values = {"id": row_id, "changed": self._changed, "gone": 0, **columns}
        names = ", ".join(values)
        with self._engine.begin() as connection:
            connection.execute(text(f"DELETE FROM {table} WHERE id = :id"), {"id": row_id})
            connection.execute(
                text(f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in values)})"),
                values,
            )

    def change(self, table: str, row_id: str, columns: dict[str, Any] | None) -> list[tuple[str, ...]]:
        """Puts or drops a row; returns the kinds and ids that the application pushes."""
        before = self._about(table, row_id)
        if columns is None:
            self.drop(table, row_id)
        else:
            self.put(table, row_id, **columns)
        return list(dict.fromkeys([*before, *self._about(table, row_id)]))

    def _about(self, table: str, row_id: str) -> list[tuple[str, ...]]:
        row = next((one for one in self.rows(table) if one["id"] == row_id), None)
        if row is None or table == "leaver":
            return []
        if table == "person":
            return [("user", row_id)]
        if table == "member":
            return [("membership", row["person"])]
        if table == "doc":
            owned = [("grant", row_id, row["owner"])] if row["owner"] else []
            return [("document", row_id), *owned]
        return [("grant", row["doc"], row["person"] if table == "share" else row["login"])]

    def drop(self, table: str, row_id: str) -> None:
        """Marks a row as deleted."""
        self._changed += 1
        with self._engine.begin() as connection:
            connection.execute(
                text(f"UPDATE {table} SET gone = 1, changed = :changed WHERE id = :id"),
                {"changed": self._changed, "id": row_id},
            )

    def save(self) -> Backup:
        """The counter, and all rows of each table."""
        with self._engine.connect() as connection:
            rows = {
                name: [dict(row) for row in connection.execute(text(f"SELECT * FROM {name}")).mappings()]
                for name in _TABLES
            }
        return self._changed, rows

    def restore(self, backup: Backup) -> None:
        """Restores all tables and the counter."""
        self._changed, tables = backup
        with self._engine.begin() as connection:
            for name, rows in tables.items():
                connection.execute(text(f"DELETE FROM {name}"))
                for row in rows:
                    values = ", ".join(f":{column}" for column in row)
                    connection.execute(text(f"INSERT INTO {name} ({', '.join(row)}) VALUES ({values})"), row)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows that are not gone."""
        with self._engine.connect() as connection:
            found = connection.execute(text(f"SELECT * FROM {table} WHERE gone = 0 ORDER BY id"))
            return [dict(row) for row in found.mappings()]

    def allowed(self) -> dict[tuple[str, str], str]:
        """(user, document) → ``viewer`` or ``editor``, computed from the tables."""
        people = {row["id"]: row for row in self.rows("person")}
        left = {row["person"] for row in self.rows("leaver") if row["has_left"]}
        members: dict[str, list[str]] = {}
        for row in self.rows("member"):
            members.setdefault(row["person"], []).append(row["role"])
        logins: dict[str, list[str]] = {}
        for row in people.values():
            logins.setdefault(row["login"].lower(), []).append(row["id"])
        granted: dict[tuple[str, str], list[str]] = {}
        for row in self.rows("share"):
            granted.setdefault((row["person"], row["doc"]), []).append(row["role"])
        for row in self.rows("invite"):
            holders = logins.get(row["login"].lower(), [])
            if len(holders) == 1:
                granted.setdefault((holders[0], row["doc"]), []).append(row["role"])
        found: dict[tuple[str, str], str] = {}
        for document in self.rows("doc"):
            for user, person in people.items():
                roles = list(granted.get((user, document["id"]), []))
                if document["owner"] == user:
                    roles.append("editor")
                if not roles and document["access"] == "organizationPrivate":
                    roles = members.get(user, [])
                if roles and not person["off"] and user not in left:
                    found[user, document["id"]] = "editor" if "editor" in roles else "viewer"
        return found

    def record(self, kind: str, *ids: str) -> tuple[dict[str, Any], bool]:
        """The pushed form of an item: the record, or its key, and whether it exists."""
        key, values = getattr(self, f"_{kind}")(*ids)
        return ({"kind": kind, **key, **(values or {})}, values is not None)

    def _user(self, user: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
        row = next((one for one in self.rows("person") if one["id"] == user), None)
        values = row and {"name": row["name"], "email": "", "aliases": [row["login"]], "disabled": bool(row["off"])}
        return {"userId": user}, values

    def _membership(self, user: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
        roles = [row["role"] for row in self.rows("member") if row["person"] == user]
        return {"organizationId": "acme", "userId": user}, _role(roles)

    def _document(self, document: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
        row = next((one for one in self.rows("doc") if one["id"] == document), None)
        values = row and {"documentName": row["title"], "accessType": row["access"]}
        return {"organizationId": "acme", "documentId": document}, values

    def _grant(self, document: str, user: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """A grant to a user, by id or by login (with an @)."""
        if "@" in user:
            roles = [row["role"] for row in self.rows("invite") if (row["doc"], row["login"]) == (document, user)]
            return {"organizationId": "acme", "documentId": document, "userAlias": user}, _role(roles)
        roles = [row["role"] for row in self.rows("share") if (row["doc"], row["person"]) == (document, user)]
        roles += ["editor" for row in self.rows("doc") if (row["id"], row["owner"]) == (document, user)]
        return {"organizationId": "acme", "documentId": document, "userId": user}, _role(roles)


def _role(roles: list[str]) -> dict[str, Any] | None:
    return {"accessRole": "editor" if "editor" in roles else "viewer"} if roles else None


def source_settings(url: str, *, by_rules: bool, token: str) -> list[dict[str, Any]]:
    """The settings of two sources on the database: ``app`` (records, or objects with rules), and ``hr``, whose fills
    disable people."""
    further = {"cursor": "changed", "deleted": "gone", "overlap": 0}
    records = {name: query.replace('"', "`") if url.startswith("mysql") else query for name, query in _RECORDS.items()}
    hr = _table("leaver", further)
    if by_rules:
        names = [name for name in _TABLES if name != "leaver"]
        app = {"organizations": {"query": records["organizations"], **further}}
        app |= {name: _table(name, further) for name in names}
    else:
        app = {name: {"query": query, **further} for name, query in records.items()}
        app["memberships"]["key"] = app["grants"]["key"] = "id"
    of_app: dict[str, Any] = {"type": "sql", "name": "app", "url": url, "queries": app}
    of_hr: dict[str, Any] = {"type": "sql", "name": "hr", "url": url, "queries": {"leaver": hr}, "map": [_LEAVER]}
    return [of_app | {"changes": {"tokens": [token]}, **({"map": _RULES} if by_rules else {})}, of_hr]


def office_settings(url: str) -> dict[str, Any]:
    """The settings of a source of the organization, its documents, and leavers, of which ``person`` is an alias."""
    further = {"cursor": "changed", "deleted": "gone", "overlap": 0}
    queries = {name: {"query": _RECORDS[name], **further} for name in ("organizations", "documents")}
    leaver = {"from": "leaver", "fill": "it.person", "user": {"disabled": "it.has_left != 0"}}
    return {
        "type": "sql",
        "name": "office",
        "url": url,
        "queries": {**queries, "leaver": _table("leaver", further)},
        "map": [leaver],
    }


def _table(name: str, further: dict[str, Any]) -> dict[str, Any]:
    return {"query": f"SELECT * FROM {name}", "key": "id", **further}
