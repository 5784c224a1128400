"""Changes of OpenLDAP: content synchronization (RFC 4533) from a cookie that was made before a read in pages.

A cookie says up to which change (CSN) somebody knows the content. The server keeps it as ``contextCSN`` at its suffix,
so what was read in pages, which is several times as fast, can be followed up by changes from there on.

The server tells changes in one of two ways. As long as its session log reaches back, it names what is gone. Else it
names all that is still there, and what it does not name is gone: then everything is as well read in pages.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

import ldap
import orjson
from ldap.controls import LDAPControl
from ldap.syncrepl import SyncDoneControl, SyncInfoMessage, SyncRequestControl, SyncStateControl

from app.directory.connector import DirectoryObject, ObjectGone
from app.directory.connectors.ldap.objects import SetReader
from app.directory.connectors.ldap.reading import REMEMBERED, Reader
from app.directory.connectors.ldap.session import LdapEntry, LdapSession, Search
from app.directory.connectors.ldap.trouble import CursorRefusedError, of_search, said_of
from app.directory.source import Malformed, ObjectId
from app.foundation.text import printable

_CONTAINERS = (
    "(|(objectClass=organizationalUnit)(objectClass=organization)(objectClass=dcObject)(objectClass=domain)"
    "(objectClass=locality)(objectClass=country))"
)
"""Entries that contain others. If one is moved or renamed, the entries in it have other DNs, which the server does not
report."""

_CSN = re.compile(r"[0-9]{14}(?:\.[0-9]{6})?Z#[0-9a-f]{6}#[0-9a-f]{3}#[0-9a-f]{6}")

_NUMBERS = ("entryUUID", "entryCSN")

_REFRESH_REQUIRED = 4096
"""e-syncRefreshRequired."""

_TOO_LONG_AGO = "the server's session log does not reach back that far (syncprov-sessionlog sets how far)"


def cursor_now(session: LdapSession, base: str, since: str) -> tuple[str, str]:
    """A cursor from which changes can be asked for later, or the reason why there is none. Take it before a read."""
    session.forget_root()
    if not session.supports(SyncRequestControl.controlType):
        return "", "the server does not tell of changes (overlay syncprov)"
    context = session.naming_context(base)
    suffix = session.entry(context, ["contextCSN"])
    numbers = sorted(() if suffix is None else (one.decode() for one in suffix.attributes.get("contextCSN", ())))
    if not numbers:
        return "", "the reader may not see contextCSN at the suffix, or the overlay syncprov is not there"
    newest = _newest(session, context, since, numbers)
    if not newest:
        return "", "the reader may not see entryUUID and entryCSN, by which a restored server is noticed"
    return orjson.dumps({"csn": numbers, "newest": newest, "of": session.settings.server}).decode(), ""


def _newest(session: LdapSession, context: str, since: str, numbers: Sequence[str]) -> dict[str, str]:
    """The entries that changed last: UUID → CSN. Those of an earlier cursor are known already."""
    try:
        before, known = _parsed(since)
    except CursorRefusedError:
        before, known = [], {}
    if before == numbers:
        return known
    last = max(numbers)
    # From the beginning of the minute, then of the day, of the last change.
    first = [max(before)] if before else [f"{last[:size]:0<14}.000000Z#000000#000#000000" for size in (12, 8)]
    still = "".join(f"(entryUUID={uuid})" for uuid in known)
    for filter_ in (*(f"(|{still}(entryCSN>={one}))" for one in first), "(entryCSN=*)"):
        pages = session.pages(Search(context, filter_, _NUMBERS))
        found = [one for page in pages for one in map(_number, page.entries) if all(one)]
        if found:
            return dict(sorted(found, key=lambda one: one[1], reverse=True)[:REMEMBERED])
    return {}


def _number(entry: LdapEntry) -> tuple[str, str]:
    uuid, csn = (next(iter(entry.attributes.get(name, ())), b"").decode(errors="replace") for name in _NUMBERS)
    return uuid, csn


def _parsed(cursor: str) -> tuple[list[str], dict[str, str]]:
    """The CSNs of a cursor, and the entries that had changed last. Raises ``CursorRefusedError``."""
    try:
        given = orjson.loads(cursor)
        numbers = [str(one) for one in given["csn"]]
        newest = {str(UUID(uuid)): str(csn) for uuid, csn in given["newest"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        numbers, newest = [], {}
    # A server takes a cookie that it does not understand for none, and would report everything as changed.
    if not numbers or not newest or not all(_CSN.fullmatch(one) for one in (*numbers, *newest.values())):
        raise CursorRefusedError("the cursor is not one of this source's")
    return numbers, newest


_MOST = 5_000
"""Changes beyond which everything is read anew, which is faster then."""


class SyncreplChanges:
    """What changed since a cursor. Raises ``CursorRefusedError``, and before it gives anything."""

    def __init__(self, reader: Reader, since: str, now: str) -> None:
        numbers, newest = _parsed(since)
        if orjson.loads(since).get("of") != orjson.loads(now)["of"]:
            raise CursorRefusedError("another server answers than before")
        self._cookie = f"rid=000,csn={';'.join(numbers)}"
        self._reader = reader
        self._context = reader.session.naming_context(reader.settings.base)
        self._left = _MOST
        if since == now:
            self._told: list[tuple[SetReader, list[LdapEntry | str]]] = []
            return
        missing = self._missing(newest)
        reported = self._see_to_containers(numbers)
        if missing - reported:
            raise CursorRefusedError(f"entry {min(missing - reported)} is not there any more: the server was restored")
        self._told = [
            (one, self._ask(Search(one.base, one.filter, one.attributes, one.scope, one.where))) for one in reader.sets
        ]

    def __iter__(self) -> Iterator[DirectoryObject | ObjectGone | Malformed]:
        for one, told in self._told:
            for entry in told:
                if isinstance(entry, LdapEntry):
                    yield from self._reader.of_entry(one, entry)
                else:
                    yield ObjectGone(ObjectId(one.name, entry))

    def _missing(self, newest: Mapping[str, str]) -> set[str]:
        """Those of the remembered entries that are not there. Refuses if one of the others has an older state."""
        filter_ = f"(|{''.join(f'(entryUUID={uuid})' for uuid in newest)})"
        found = dict(map(_number, self._reader.session.entries(Search(self._context, filter_, _NUMBERS))))
        for uuid, csn in found.items():
            if csn < newest.get(uuid, ""):
                raise CursorRefusedError(f"entry {uuid} has an older state than before: the server was restored")
        return newest.keys() - found.keys()

    def _see_to_containers(self, numbers: Sequence[str]) -> set[str]:
        """Refuses if a container changed that is older than the cursor: the entries in it may have other DNs now.

        The search covers the whole naming context. A container that was moved out of the base is not found below it.
        Returns the UUIDs of entries that were deleted, or that changed and are no container.
        """
        then = max(number[:14] for number in numbers)
        others = set[str]()
        for entry in self._ask(Search(self._context, _CONTAINERS, ["createTimestamp"])):
            if isinstance(entry, str):
                others.add(entry)
                continue
            created = next(iter(entry.attributes.get("createTimestamp", ())), b"").decode(errors="replace")
            if created[:14] <= then:
                raise CursorRefusedError(
                    f"{printable(entry.dn, limit=100)} was changed, and objects in it may have been moved with it"
                )
        return others

    def _ask(self, search: Search) -> list[LdapEntry | str]:
        """Entries that changed, and the UUIDs of those that are gone."""
        session = self._reader.session
        message = session.begin(search, SyncRequestControl(cookie=self._cookie, mode="refreshOnly"))
        told: list[LdapEntry | str] = []
        try:
            while True:
                kind, data, _, controls, _, _ = session.connection.result4(
                    message, 0, session.settings.answer_timeout, add_ctrls=1, add_intermediates=1
                )
                if kind == ldap.RES_SEARCH_RESULT:
                    _see_that_it_named_deletions(controls)
                    return told
                told += _of_intermediates(data) if kind == ldap.RES_INTERMEDIATE else _of_entries(data)
                if len(told) > self._left:
                    session.give_up(message)
                    raise CursorRefusedError(f"more than {_MOST:,} objects have changed since then")
        except (ldap.SIZELIMIT_EXCEEDED, ldap.UNWILLING_TO_PERFORM) as error:
            # "Consumer state is newer than provider", for one: the server was restored.
            raise CursorRefusedError(f"the server does not go on from there: {said_of(error)}") from error
        except ldap.LDAPError as error:
            if error.args and isinstance(error.args[0], dict) and error.args[0].get("result") == _REFRESH_REQUIRED:
                raise CursorRefusedError("the server does not go on from there") from error
            if isinstance(error, ldap.TIMEOUT):
                session.give_up(message)
            raise of_search(error, session.settings, where=search.where) from error
        finally:
            self._left -= len(told)


def _see_that_it_named_deletions(controls: Sequence[LDAPControl]) -> None:
    done = [one for one in controls if isinstance(one, SyncDoneControl)]
    if not done or not done[0].refreshDeletes:
        raise CursorRefusedError(_TOO_LONG_AGO)


def _of_entries(
    data: Sequence[tuple[str | None, Mapping[str, Sequence[bytes]], Sequence[LDAPControl]]],
) -> list[LdapEntry | str]:
    told: list[LdapEntry | str] = []
    for dn, attributes, controls in data:
        state = next((one for one in controls if isinstance(one, SyncStateControl)), None)
        if state is None or dn is None:
            continue
        if state.state == "present":
            raise CursorRefusedError(_TOO_LONG_AGO)
        told.append(state.entryUUID if state.state == "delete" else LdapEntry(dn, attributes))
    return told


def _of_intermediates(data: Sequence[tuple[str, bytes, object]]) -> list[LdapEntry | str]:
    told: list[LdapEntry | str] = []
    for name, value, _ in data:
        if name != SyncInfoMessage.responseName:
            continue
        ids = SyncInfoMessage(value).syncIdSet
        if ids is not None and not ids["refreshDeletes"]:
            raise CursorRefusedError(_TOO_LONG_AGO)
        told += [] if ids is None else [str(one) for one in ids["syncUUIDs"]]
    return told
