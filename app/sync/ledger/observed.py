"""Stores the items that a verify has read from the backend, and corrects the ledger by them.

``stage_observed`` fills ``observed_item``. The other functions compare it with the ledger: items in set operations,
their fields by page. Afterwards the ledger agrees with the backend about Usher's own items, so that the next plan finds
the differences. Foreign items are only counted.
"""

# ruff: noqa: S608 - SQL consists of constants of this module; data is in parameters.

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, delete

from app.foundation.database.statements import json_list, run
from app.sync.ledger.tables import ObservedItemRow

_OBSERVED = ObservedItemRow.__table__

PAGE = 2000
"""Items whose fields are compared together."""

FOREIGN_NAMED = 100
"""The maximum of foreign items that a report names."""

_SAME = (
    "o.ledger_id = :ledger_id AND o.kind = l.kind AND o.organization_id = l.organization_id"
    " AND o.container_id = l.container_id AND o.item_id = l.item_id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One item as the backend returns it."""

    kind: str
    organization_id: str
    container_id: str = ""
    item_id: str
    parent_id: str = ""
    access_type: str = ""
    access_role: str = ""
    disabled: bool = False
    payload: str = "{}"
    known: str = ""
    """Which attributes the answer contains: ``parent``, ``access`` (its own access type, or that it has none), ``type``
    (an access type that may be inherited), ``role`` and ``disabled``."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The fields of an item in the backend and in the directory."""

    kind: str
    organization_id: str
    container_id: str
    item_id: str
    observed_payload: str
    desired_payload: str
    desired_digest: str
    ledger_digest: str
    """Empty if the ledger does not know the fields."""


def clear_observed(connection: Connection, ledger_id: int) -> None:
    """Removes the observed items."""
    connection.execute(delete(_OBSERVED).where(_OBSERVED.c.ledger_id == ledger_id))


def stage_observed(connection: Connection, ledger_id: int, items: Iterable[Observed]) -> None:
    """Stores observed items. Of an item that comes twice, the first one is stored."""
    rows = {
        (item.kind, item.organization_id, item.container_id, item.item_id): {
            "ledger_id": ledger_id,
            **{name: getattr(item, name) for name in Observed.__dataclass_fields__},
        }
        for item in items
    }
    if not rows:
        return
    names = ", ".join(column.name for column in _OBSERVED.columns)
    values = ", ".join(f":{column.name}" for column in _OBSERVED.columns)
    run(
        connection, f"INSERT INTO observed_item ({names}) VALUES ({values}) ON CONFLICT DO NOTHING", list(rows.values())
    )


_WITHOUT_FOLDER = """ledger_id = :ledger_id AND kind = 'document' AND organization_id = :organization_id
    AND container_id = '' AND known NOT LIKE '%parent%'"""


def lack_folders(connection: Connection, ledger_id: int, organization_id: str) -> bool:
    """Whether documents of the organization were observed without their folder."""
    query = f"SELECT EXISTS (SELECT 1 FROM observed_item WHERE {_WITHOUT_FOLDER})"
    return bool(run(connection, query, {"ledger_id": ledger_id, "organization_id": organization_id}).scalar())


def place_documents(
    connection: Connection, ledger_id: int, organization_id: str, folder_id: str, document_ids: Sequence[str]
) -> None:
    """Stores the folder in which these documents were found. ``place_others`` decides by it."""
    run(
        connection,
        f"""
        UPDATE observed_item SET parent_id = :folder_id, known = 'found ' || known
        WHERE {_WITHOUT_FOLDER} AND item_id IN (@list(document_ids))
        """,
        {
            "ledger_id": ledger_id,
            "organization_id": organization_id,
            "folder_id": folder_id,
            "document_ids": json_list(document_ids),
        },
    )


def place_others(connection: Connection, ledger_id: int, organization_id: str) -> None:
    """Documents that were found in no folder are at the top. The folder of those in several stays unknown."""
    run(
        connection,
        f"""
        UPDATE observed_item SET known = 'parent ' || known
        WHERE {_WITHOUT_FOLDER} AND known NOT LIKE '%found found%'
        """,
        {"ledger_id": ledger_id, "organization_id": organization_id},
    )


def drop_missing(connection: Connection, ledger_id: int, kind: str, within: str, scope: dict[str, object]) -> int:
    """Removes missing items from the ledger, and returns their number. ``within``: a condition on ``l``."""
    return run(
        connection,
        """
        DELETE FROM ledger_item AS l
        WHERE l.ledger_id = :ledger_id AND l.kind = :kind AND {within}
        AND NOT EXISTS (SELECT 1 FROM observed_item o WHERE {same})
        """,
        {"ledger_id": ledger_id, "kind": kind, **scope},
        within=within,
        same=_SAME,
    ).rowcount


def drop_organizations(connection: Connection, ledger_id: int, within: str, scope: dict[str, object]) -> int:
    """Removes missing organizations, with all of their items, from the ledger."""
    return run(
        connection,
        """
        DELETE FROM ledger_item AS l
        WHERE l.ledger_id = :ledger_id AND {within} AND NOT EXISTS (
            SELECT 1 FROM observed_item o WHERE o.ledger_id = :ledger_id AND o.kind = 'organization'
            AND o.organization_id = l.organization_id AND o.container_id = '' AND o.item_id = l.organization_id)
        """,
        {"ledger_id": ledger_id, **scope},
        within=within,
    ).rowcount


# A row of the ledger as it was observed, of the items in ``{items} l``. ``{digest}``: empty if the fields are unknown.
_ADD_OBSERVED = """
INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id, access_type,
  access_role, disabled, certain, gone_at)
SELECT o.ledger_id, o.kind, o.organization_id, o.container_id, o.item_id, {digest}, o.parent_id, o.access_type,
  o.access_role, o.disabled, {all_shown}, {gone_at}
FROM {items} l CROSS JOIN observed_item o WHERE {same}
ON CONFLICT (ledger_id, kind, organization_id, container_id, item_id) DO NOTHING
"""


def adopt(connection: Connection, ledger_id: int) -> int:
    """Adds desired items that the ledger lacks to the ledger, and returns their number.

    Reads the temporary table ``desired``. Items that the backend does not return completely are unconfirmed.
    """
    digest = "CASE o.kind WHEN 'groupMember' THEN l.digest ELSE '' END"
    return _add_observed(connection, ledger_id, "desired", digest=digest, gone_at="CAST(NULL AS BIGINT)")


def restore_undeleted(connection: Connection, ledger_id: int) -> int:
    """Adds items that were reported as deleted but still exist to the ledger, and returns their number.

    Called after ``adopt``, which adds those that are desired again. The next plan deletes the others, within its limits
    and without another grace period.
    """
    deleted = "(SELECT * FROM deleted_item WHERE ledger_id = :ledger_id)"
    return _add_observed(connection, ledger_id, deleted, digest="''", gone_at="0")


def _add_observed(connection: Connection, ledger_id: int, items: str, **columns: str) -> int:
    parts = {"items": items, "same": _SAME, "all_shown": _ALL_SHOWN, **columns}
    return run(connection, _ADD_OBSERVED, {"ledger_id": ledger_id}, **parts).rowcount


def forget_deleted(connection: Connection, ledger_id: int, kind: str, within: str, scope: dict[str, object]) -> None:
    """Removes deletions that a verify has checked. ``within``: a condition on ``l``."""
    run(
        connection,
        "DELETE FROM deleted_item AS l WHERE l.ledger_id = :ledger_id AND l.kind = :kind AND {within}",
        {"ledger_id": ledger_id, "kind": kind, **scope},
        within=within,
    )


_ALL_SHOWN = """CASE o.kind
    WHEN 'document' THEN o.known LIKE '%parent%' AND o.known LIKE '%access%'
    WHEN 'folder' THEN o.known LIKE '%parent%' AND o.known LIKE '%access%'
    ELSE TRUE END"""
"""Whether the answer contains all attributes. A missing role is empty, which differs from every role."""

_SEEN = {
    "parent_id": "CASE WHEN o.known LIKE '%parent%' THEN o.parent_id ELSE l.parent_id END",
    "access_type": (
        "CASE WHEN o.known LIKE '%access%' OR (o.known LIKE '%type%' AND l.access_type <> '')"
        " THEN o.access_type ELSE l.access_type END"
    ),
    "access_role": "CASE WHEN o.known LIKE '%role%' THEN o.access_role ELSE l.access_role END",
    "disabled": "CASE WHEN o.known LIKE '%disabled%' THEN o.disabled ELSE l.disabled END",
}
"""Column of the ledger → its value after a verify."""


def update_observed(connection: Connection, ledger_id: int) -> int:
    """Sets parents, access types, roles and states to the observed ones, and returns how many items differed."""
    return run(
        connection,
        """
        UPDATE ledger_item AS l SET {changes} FROM observed_item o
        WHERE l.ledger_id = :ledger_id AND {same} AND ({differs})
        """,
        {"ledger_id": ledger_id},
        changes=", ".join(f"{name} = {expression}" for name, expression in _SEEN.items()),
        same=_SAME,
        differs=" OR ".join(f"l.{name} <> {expression}" for name, expression in _SEEN.items()),
    ).rowcount


def confirm_observed(connection: Connection, ledger_id: int) -> None:
    """Marks unconfirmed items that were observed completely as confirmed."""
    run(
        connection,
        """
        UPDATE ledger_item AS l SET certain = TRUE FROM observed_item o
        WHERE l.ledger_id = :ledger_id AND NOT l.certain AND {same} AND {shown}
        """,
        {"ledger_id": ledger_id},
        same=_SAME,
        shown=_ALL_SHOWN,
    )


_TO_COMPARE = """
    SELECT o.kind, o.organization_id, o.container_id, o.item_id, o.payload AS observed_payload,
        a.payload AS desired_payload, a.digest AS desired_digest, l.digest AS ledger_digest
    FROM observed_item o CROSS JOIN ledger_item l CROSS JOIN {table} a
    WHERE o.ledger_id = :ledger_id AND o.kind = :kind
    AND (o.organization_id, o.container_id, o.item_id) > (:organization_id, :container_id, :item_id)
    AND l.ledger_id = :ledger_id AND l.kind = o.kind AND l.organization_id = o.organization_id
    AND l.container_id = o.container_id AND l.item_id = o.item_id
    AND {same} AND (l.digest = a.digest OR l.digest = '')
    ORDER BY o.organization_id, o.container_id, o.item_id LIMIT :page
"""

_DESIRED = {
    "organization": ("model_organization", "a.organization_id = o.item_id"),
    "folder": ("model_folder", "a.organization_id = o.organization_id AND a.folder_id = o.item_id"),
    "document": ("model_document", "a.organization_id = o.organization_id AND a.document_id = o.item_id"),
    "organizationUser": ("model_user", "a.user_id = o.item_id"),
    "folderUser": ("model_user", "a.user_id = o.item_id"),
    "documentUser": ("model_user", "a.user_id = o.item_id"),
}
"""Kind → the table of the access model with its fields, and the condition for the row of an item."""


def to_compare(connection: Connection, ledger_id: int, kind: str) -> Iterator[Sequence[Compared]]:
    """Pages of items whose fields have to be compared: up to date by the ledger, or unknown."""
    if kind not in _DESIRED:
        return
    table, same = _DESIRED[kind]
    after = {"organization_id": "", "container_id": "", "item_id": ""}
    while True:
        rows = run(
            connection,
            _TO_COMPARE,
            {"ledger_id": ledger_id, "kind": kind, "page": PAGE, **after},
            table=table,
            same=same,
        ).all()
        if not rows:
            return
        yield [Compared(*map(str, row)) for row in rows]
        after = {name: getattr(rows[-1], name) for name in after}


def store_digests(connection: Connection, ledger_id: int, digests: Sequence[tuple[Compared, str]]) -> None:
    """Stores the digests of compared items, empty if the fields differ."""
    if not digests:
        return
    run(
        connection,
        """
        UPDATE ledger_item SET digest = :digest WHERE ledger_id = :ledger_id AND kind = :kind
        AND organization_id = :organization_id AND container_id = :container_id AND item_id = :item_id
        """,
        [{**asdict(item), "ledger_id": ledger_id, "digest": digest} for item, digest in digests],
    )


_FOREIGN = f"""
    FROM observed_item o WHERE o.ledger_id = :ledger_id
    AND NOT EXISTS (SELECT 1 FROM ledger_item l WHERE l.ledger_id = :ledger_id AND {_SAME})
"""


def find_foreign(connection: Connection, ledger_id: int) -> tuple[dict[str, int], list[str]]:
    """Items that are not in the ledger: the number of each kind, and the names of the first ones."""
    parameters: dict[str, object] = {"ledger_id": ledger_id, "named": FOREIGN_NAMED}
    rows = run(connection, f"SELECT o.kind, count(*) AS number {_FOREIGN} GROUP BY o.kind ORDER BY o.kind", parameters)
    counts = {row.kind: row.number for row in rows}
    named = run(
        connection,
        f"""
        SELECT o.kind, o.organization_id, o.container_id, o.item_id {_FOREIGN}
        ORDER BY o.kind, o.organization_id, o.container_id, o.item_id LIMIT :named
        """,
        parameters,
    )
    return counts, [f"{kind} {' / '.join(dict.fromkeys(filter(None, key)))}" for kind, *key in named]
