"""A query of a source: its text, and what tells one row from another and new ones from old ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from app.access.kinds import KINDS
from app.directory.casting import plural

KINDS_BY_PLURAL: Mapping[str, str] = {plural(kind): kind for kind in KINDS}
"""What a query is called whose rows are records → their kind."""

LONGEST_ID = 255
"""Bytes of an id beyond which a digest stands for it."""

_DIGEST = "sha256:"

_ID = "id"


@dataclass(frozen=True, slots=True)
class Query:
    """One of a source's queries, as it was configured."""

    name: str
    text: str
    key: tuple[str, ...] = ()
    """The columns that identify a row for good; empty: those of the fields that identify a record of the kind, or the
    column ``id`` of a query whose rows are no records, or all of its columns."""
    cursor: str = ""
    """The column that grows with every change of a row; empty: changes cannot be asked for."""
    deleted: str = ""
    """The column that says that a row is gone, or a query for the keys of such rows; empty: nothing says it."""
    overlap: int = 0
    """How far before the cursor changes are read again: seconds, or so many numbers."""
    null_is_absent: frozenset[str] = frozenset()
    """The fields among those that decide about access in which NULL means that the record does not have them."""

    @property
    def kind(self) -> str | None:
        """The kind of record that its rows are; None: rules make records of them."""
        return KINDS_BY_PLURAL.get(self.name)

    @property
    def deleted_is_query(self) -> bool:
        """Whether ``deleted`` is a statement rather than a column."""
        return len(self.deleted.split()) > 1

    @property
    def own_columns(self) -> tuple[str, ...]:
        """The columns that its settings name."""
        flag = "" if self.deleted_is_query else self.deleted
        return tuple(dict.fromkeys(name for name in (*self.key, self.cursor, flag) if name))

    def key_among(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns of its rows' key; empty where the row as a whole is its own."""
        if self.key:
            return self.key
        if self.kind is None:
            return (_ID,) if _ID in columns else ()
        return tuple(field.name for field in KINDS[self.kind].keys if field.name in columns)


def id_of(parts: Sequence[str]) -> str:
    """One id for the parts of a key: ``acme/doc-1``."""
    if len(parts) == 1:
        text = parts[0]
    else:
        text = "/".join(parts)
        if "%" in text or text.count("/") != len(parts) - 1:
            text = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in parts)
    if len(text) * 4 > LONGEST_ID and len(text.encode(errors="replace")) > LONGEST_ID:
        return digest_of(text)
    return text


def digest_of(text: str) -> str:
    """An id of any text; nothing leads back from it."""
    return _DIGEST + sha256(text.encode(errors="surrogatepass")).hexdigest()


def parts_of(identifier: str, count: int) -> tuple[str, ...] | None:
    """The parts again; None where the id is a digest, or none of ``count`` parts."""
    if identifier.startswith(_DIGEST):
        return None
    if count == 1:
        return (identifier,)
    parts = tuple(part.replace("%2F", "/").replace("%25", "%") for part in identifier.split("/"))
    return parts if len(parts) == count else None
