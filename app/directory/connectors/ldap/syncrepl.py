"""Changes of OpenLDAP: content synchronization (RFC 4533) from a cookie that was made before a read in pages.

A cookie says up to which change (CSN) somebody knows the content. The server keeps it as ``contextCSN`` at its suffix,
so what was read in pages, which is several times as fast, can be followed up by changes from there on.

The server tells changes in one of two ways. As long as its session log reaches back, it names what is gone. Else it
names all that is still there, and what it does not name is gone: then everything is as well read in pages.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import ldap
import orjson
from ldap.controls import LDAPControl
from ldap.syncrepl import SyncDoneControl, SyncInfoMessage, SyncRequestControl, SyncStateControl

from app.directory.connector import DirectoryObject, ObjectGone
from app.directory.connectors.ldap.objects import SetReader
from app.directory.connectors.ldap.reading import Reader
from app.directory.connectors.ldap.session import LdapEntry, LdapSession, Search
from app.directory.connectors.ldap.trouble import CursorRefusedError, of_search, said_of
from app.directory.source import Malformed, ObjectId
from app.text import printable

_CONTAINERS = (
    "(|(objectClass=organizationalUnit)(objectClass=organization)(objectClass=dcObject)(objectClass=domain)"
    "(objectClass=locality)(objectClass=country))"
)
"""Entries that contain others. If one is moved or renamed, the entries in it have other DNs, which the server does not
report."""

_CSN = re.compile(r"[0-9]{14}(?:\.[0-9]{6})?Z#[0-9a-f]{6}#[0-9a-f]{3}#[0-9a-f]{6}")

_REFRESH_REQUIRED = 4096
"""e-syncRefreshRequired."""

_TOO_LONG_AGO = "the server's session log does not reach back that far (syncprov-sessionlog sets how far)"


def cursor_now(session: LdapSession, base: str) -> tuple[str, str]:
    """A cursor from which changes can be asked for later; or why none can be had. To be taken before a read begins."""
    session.forget_root()
    if not session.supports(SyncRequestControl.controlType):
        return "", "the server does not tell of changes (overlay syncprov)"
    suffix = session.entry(session.naming_context(base), ["contextCSN"])
    numbers = sorted(() if suffix is None else (one.decode() for one in suffix.attributes.get("contextCSN", ())))
    if not numbers:
        return "", "the reader may not see contextCSN at the suffix, or the overlay syncprov is not there"
    return orjson.dumps({"csn": numbers}).decode(), ""


_MOST = 5_000
"""Changes beyond which everything is read anew, which is faster then."""


class SyncreplChanges:
    """What changed since a cursor. Raises ``CursorRefusedError``, and before it gives anything."""

    def __init__(self, reader: Reader, since: str, now: str) -> None:
        try:
            numbers = [str(one) for one in orjson.loads(since)["csn"]]
        except (ValueError, TypeError, KeyError):
            numbers = []
        # A server takes a cookie that it does not understand for none, and would tell everything as changed.
        if not numbers or not all(_CSN.fullmatch(one) for one in numbers):
            raise CursorRefusedError("the cursor is not one of this source's")
        self._cookie = f"rid=000,csn={';'.join(numbers)}"
        self._reader = reader
        self._left = _MOST
        if since == now:
            self._told: list[tuple[SetReader, list[LdapEntry | str]]] = []
            return
        self._see_to_containers(numbers)
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

    def _see_to_containers(self, numbers: Sequence[str]) -> None:
        """Refuses if a container changed that is older than the cursor: the entries in it may have other DNs now.

        The search covers the whole naming context. A container that was moved out of the base is not found below it.
        """
        then = max(number[:14] for number in numbers)
        suffix = self._reader.session.naming_context(self._reader.settings.base)
        for entry in self._ask(Search(suffix, _CONTAINERS, ["createTimestamp"])):
            if isinstance(entry, LdapEntry):
                created = next(iter(entry.attributes.get("createTimestamp", ())), b"").decode(errors="replace")
                if created[:14] <= then:
                    raise CursorRefusedError(
                        f"{printable(entry.dn, limit=100)} was changed, and objects in it may have been moved with it"
                    )

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
