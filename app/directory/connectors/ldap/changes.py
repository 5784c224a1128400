"""Incremental reads of LDAP: whether they are possible, and their protocol (``usn.py``, ``syncrepl.py``)."""

import re
from collections.abc import Collection, Iterable, Mapping

from app.directory.connector import ALL_ATTRIBUTES, DirectoryObject, RequestedFields
from app.directory.connectors.ldap.objects import Reader
from app.directory.connectors.ldap.syncrepl import SyncreplChanges, csn_cursor
from app.directory.connectors.ldap.usn import UsnChanges, usn_cursor
from app.directory.source import Gone, Malformed


def cursor_now(reader: Reader, wanted: RequestedFields, since: str) -> tuple[str, str]:
    """The cursor of a read that begins now, or the reason why incremental reads are not possible.

    ``since``: the cursor of the last read. Both are empty if the preset has no incremental reads.
    """
    session, preset = reader.session, reader.preset
    if preset.changes == "none":
        return "", ""
    filters = {set_reader.name: set_reader.filter for set_reader in reader.sets}
    if reason := _unreported(preset.silent, filters, wanted.attributes, in_all=preset.changes == "usn"):
        return "", reason
    context = session.naming_context(reader.settings.base)
    for set_reader in reader.sets:
        if session.naming_context(set_reader.base) != context:
            where = f"{set_reader.where}.base"
            return "", f"{where} is in another naming context than base; make it a source of its own"
    session.root(refresh=True)
    return usn_cursor(session, context, reader.now) if preset.changes == "usn" else csn_cursor(session, context, since)


def changes_since(reader: Reader, since: str, now: str) -> Iterable[DirectoryObject | Gone | Malformed]:
    """The changes between two cursors. Raises ``CursorRefusedError``."""
    return (UsnChanges if reader.preset.changes == "usn" else SyncreplChanges)(reader, since, now)


def _unreported(
    silent: frozenset[str], filters: Mapping[str, str], wanted: Mapping[str, Collection[str]], *, in_all: bool
) -> str:
    """The use of an attribute whose changes the server does not report. Empty if there is none.

    ``in_all``: whether ``ALL_ATTRIBUTES`` includes these attributes.
    """
    for attribute in sorted(silent):
        for name, text in filters.items():
            if re.search(rf"\({re.escape(attribute)}\s*[:~<>]?[^()]*=", text, re.IGNORECASE):
                return f"sets.{name}.filter uses {attribute}, whose changes the server does not report"
        for name, attributes in wanted.items():
            if (in_all and ALL_ATTRIBUTES in attributes) or attribute.lower() in map(str.lower, attributes):
                return f"rules of {name} use {attribute}, whose changes the server does not report"
    return ""
