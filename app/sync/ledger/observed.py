# ruff: noqa: S608 - SQL is put together from constants of this module alone; data travels in parameters.
"""Observed items: what a verify saw in the backend, compared with the ledger and taken in.

``stage`` keeps it in ``observed_item``; the other functions compare in set operations, and read pages of payloads where
fields have to be looked at. The ledger ends up as what was seen, as far as it was seen: the next plan then finds what
has to be done by the same difference as always.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete

from app.foundation.database.statements import run
from app.sync.ledger.tables import ObservedItemRow

_OBSERVED = ObservedItemRow.__table__

PAGE = 2000
FOREIGN_NAMED = 100
"""How many of the things that were never ours a report names."""

_SAME = (
    "o.ledger_id = :ledger_id AND o.kind = l.kind AND o.organization_id = l.organization_id"
    " AND o.container_id = l.container_id AND o.item_id = l.item_id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One item as the backend shows it; ``known`` names what of parent, access, type, role and disabled it shows.

    ``access`` is a type that is known to be the item's own (or known to be none); ``type`` one that may be inherited.
    """

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


@dataclass(frozen=True, slots=True)
class Compared:
    """One item of ours or to be ours: what was seen, and what the directory says about its fields."""

    kind: str
    organization_id: str
    container_id: str
    item_id: str
    observed_payload: str
    wanted_payload: str
    wanted_digest: str
    held_digest: str
    """The ledger's: empty where it knows nothing of the fields."""


def clear_observed(connection: Connection, ledger_id: int) -> None:
    """Forgets what was seen."""
    connection.execute(delete(_OBSERVED).where(_OBSERVED.c.ledger_id == ledger_id))


def stage(connection: Connection, ledger_id: int, items: Iterable[Observed]) -> None:
    """Keeps what was seen; of an item that comes twice, the first."""
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


def drop_missing(connection: Connection, ledger_id: int, kind: str, within: str, scope: dict[str, object]) -> int:
    """Takes what the backend does not hold any more out of the ledger; how many items. ``within`` narrows ``l``."""
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
    """Takes everything of organizations that the backend does not hold any more out of the ledger."""
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


def adopt(connection: Connection, ledger_id: int) -> int:
    """Takes into the ledger what is in the backend, was never ours and is wanted; how many items.

    Needs the temporary table ``desired``. What the backend does not show about an item stays unconfirmed, so that the
    next plan tells it.
    """
    return run(
        connection,
        """
        INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id,
                                 access_type, access_role, disabled, certain, gone_at)
        SELECT o.ledger_id, o.kind, o.organization_id, o.container_id, o.item_id,
            CASE WHEN o.kind = 'groupMember' THEN d.digest ELSE '' END, o.parent_id, o.access_type, o.access_role,
            o.disabled, {certain}, CAST(NULL AS BIGINT)
        FROM desired d CROSS JOIN observed_item o
        WHERE o.ledger_id = :ledger_id AND o.kind = d.kind AND o.organization_id = d.organization_id
        AND o.container_id = d.container_id AND o.item_id = d.item_id
        ON CONFLICT (ledger_id, kind, organization_id, container_id, item_id) DO NOTHING
        """,
        {"ledger_id": ledger_id},
        certain=_ALL_SHOWN,
    ).rowcount


def take_back(connection: Connection, ledger_id: int) -> int:
    """Takes into the ledger what the backend said is deleted and shows all the same; how many items.

    After ``adopt``, which takes those of them that are wanted by now. The next plan deletes them, within its limits:
    their grace period was over when they were deleted the first time.
    """
    return run(
        connection,
        """
        INSERT INTO ledger_item (ledger_id, kind, organization_id, container_id, item_id, digest, parent_id,
                                 access_type, access_role, disabled, certain, gone_at)
        SELECT o.ledger_id, o.kind, o.organization_id, o.container_id, o.item_id, '', o.parent_id, o.access_type,
            o.access_role, o.disabled, {certain}, 0
        FROM deleted_item l CROSS JOIN observed_item o
        WHERE l.ledger_id = :ledger_id AND {same}
        ON CONFLICT (ledger_id, kind, organization_id, container_id, item_id) DO NOTHING
        """,
        {"ledger_id": ledger_id},
        certain=_ALL_SHOWN,
        same=_SAME,
    ).rowcount


def forget_deleted(connection: Connection, ledger_id: int, kind: str, within: str, scope: dict[str, object]) -> None:
    """A verify has looked, so these deletions are settled. ``within`` narrows ``l``."""
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
"""Whether nothing about the item is left to guess. A role that is not shown is empty, which differs from any."""

_SEEN = {
    "parent_id": "CASE WHEN o.known LIKE '%parent%' THEN o.parent_id ELSE l.parent_id END",
    "access_type": (
        "CASE WHEN o.known LIKE '%access%' OR (o.known LIKE '%type%' AND l.access_type <> '')"
        " THEN o.access_type ELSE l.access_type END"
    ),
    "access_role": "CASE WHEN o.known LIKE '%role%' THEN o.access_role ELSE l.access_role END",
    "disabled": "CASE WHEN o.known LIKE '%disabled%' THEN o.disabled ELSE l.disabled END",
}


def take_in_seen(connection: Connection, ledger_id: int) -> int:
    """Gives the ledger's items the parents, types, roles and states that were seen; how many had others."""
    seen = {name: expression.replace("l.", "ledger_item.") for name, expression in _SEEN.items()}
    differs = " OR ".join(f"ledger_item.{name} <> {expression}" for name, expression in seen.items())
    return run(
        connection,
        """
        UPDATE ledger_item SET {changes} FROM observed_item o
        WHERE ledger_item.ledger_id = :ledger_id AND {same} AND ({differs})
        """,
        {"ledger_id": ledger_id},
        changes=", ".join(f"{name} = {expression}" for name, expression in seen.items()),
        same=_SAME.replace("l.", "ledger_item."),
        differs=differs,
    ).rowcount


def confirm_seen(connection: Connection, ledger_id: int) -> None:
    """What was unconfirmed has been seen, and is confirmed from now on."""
    run(
        connection,
        """
        UPDATE ledger_item SET certain = TRUE FROM observed_item o
        WHERE ledger_item.ledger_id = :ledger_id AND NOT ledger_item.certain AND {same} AND {shown}
        """,
        {"ledger_id": ledger_id},
        same=_SAME.replace("l.", "ledger_item."),
        shown=_ALL_SHOWN,
    )


_TO_COMPARE = """
    SELECT o.kind, o.organization_id, o.container_id, o.item_id, o.payload AS observed_payload,
        a.payload AS wanted_payload, a.digest AS wanted_digest, l.digest AS held_digest
    FROM observed_item o CROSS JOIN ledger_item l CROSS JOIN {table} a
    WHERE o.ledger_id = :ledger_id AND o.kind = :kind
    AND (o.organization_id, o.container_id, o.item_id) > (:organization_id, :container_id, :item_id)
    AND l.ledger_id = :ledger_id AND l.kind = o.kind AND l.organization_id = o.organization_id
    AND l.container_id = o.container_id AND l.item_id = o.item_id
    AND {same} AND (l.digest = a.digest OR l.digest = '')
    ORDER BY o.organization_id, o.container_id, o.item_id LIMIT :page
"""

_WANTED = {
    "organization": ("model_organization", "a.organization_id = o.item_id"),
    "folder": ("model_folder", "a.organization_id = o.organization_id AND a.folder_id = o.item_id"),
    "document": ("model_document", "a.organization_id = o.organization_id AND a.document_id = o.item_id"),
    "organizationUser": ("model_user", "a.user_id = o.item_id"),
    "folderUser": ("model_user", "a.user_id = o.item_id"),
    "documentUser": ("model_user", "a.user_id = o.item_id"),
}
"""Kind → the table of the access model that says what its fields should be."""


def to_compare(connection: Connection, ledger_id: int, kind: str) -> Iterator[Sequence[Compared]]:
    """Pages of items whose fields have to be looked at: those that the ledger takes for right, or knows nothing of."""
    if kind not in _WANTED:
        return
    table, same = _WANTED[kind]
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
        page = [Compared(*map(str, row)) for row in rows]
        yield page
        last = page[-1]
        after = {
            "organization_id": last.organization_id,
            "container_id": last.container_id,
            "item_id": last.item_id,
        }


def set_digests(connection: Connection, ledger_id: int, digests: Sequence[tuple[Compared, str]]) -> None:
    """Writes what the fields were found to be: a digest, or nothing where they are something else."""
    if not digests:
        return
    run(
        connection,
        """
        UPDATE ledger_item SET digest = :digest WHERE ledger_id = :ledger_id AND kind = :kind
        AND organization_id = :organization_id AND container_id = :container_id AND item_id = :item_id
        """,
        [
            {
                "ledger_id": ledger_id,
                "digest": digest,
                "kind": item.kind,
                "organization_id": item.organization_id,
                "container_id": item.container_id,
                "item_id": item.item_id,
            }
            for item, digest in digests
        ],
    )


_FOREIGN = """
    FROM observed_item o WHERE o.ledger_id = :ledger_id AND NOT EXISTS (
        SELECT 1 FROM ledger_item l WHERE l.ledger_id = o.ledger_id AND l.kind = o.kind
        AND l.organization_id = o.organization_id AND l.container_id = o.container_id AND l.item_id = o.item_id)
"""


def foreign(connection: Connection, ledger_id: int) -> tuple[dict[str, int], list[str]]:
    """What is in the backend and is not ours: how many of each kind, and the first of them by name."""
    parameters: dict[str, object] = {"ledger_id": ledger_id, "named": FOREIGN_NAMED}
    rows = run(connection, f"SELECT o.kind, count(*) AS number {_FOREIGN} GROUP BY o.kind", parameters)
    counts = {str(kind): int(str(number)) for kind, number in rows}
    named = run(
        connection,
        f"""
        SELECT o.kind, o.organization_id, o.container_id, o.item_id {_FOREIGN}
        ORDER BY o.kind, o.organization_id, o.container_id, o.item_id LIMIT :named
        """,
        parameters,
    )
    return counts, [
        " ".join([str(kind), " / ".join(dict.fromkeys(str(part) for part in (organization, container, item) if part))])
        for kind, organization, container, item in named
    ]
