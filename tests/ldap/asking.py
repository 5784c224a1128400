"""Connectors of tests, and their results."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from app.directory.connector import DirectoryObject, RequestedFields
from app.directory.connectors.ldap.connector import LdapConnector
from app.directory.connectors.ldap.settings import LdapConnectionSettings
from app.directory.source import EVERYTHING, End, Gone, Malformed, ReadRequest, Remark
from tests.ldap import samba, slapd

WANTED = RequestedFields(
    {"users": frozenset({"displayName", "mail", "dn"}), "groups": frozenset({"cn"})}, members=frozenset({"groups"})
)


@dataclass
class Answer:
    """The steps of a read, by type."""

    objects: dict[str, dict[str, DirectoryObject]] = field(default_factory=dict)
    """set → place → the object."""
    gone: set[tuple[str, str]] = field(default_factory=set)
    malformed: list[Malformed] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    end: End | None = None

    @property
    def verdict(self) -> str:
        assert self.end is not None, "a read ends with its verdict"
        return self.end.verdict.value

    @property
    def reason(self) -> str:
        assert self.end is not None, "a read ends with its verdict"
        return self.end.reason

    @property
    def cursor(self) -> str:
        assert self.end is not None, "a read ends with its verdict"
        return self.end.cursor

    def ids(self) -> dict[tuple[str, str], tuple[object, ...]]:
        """What each object is, by set and id."""
        return {
            (name, one.id.id): (one.place, dict(one.value), one.names, frozenset(one.members))
            for name, objects in self.objects.items()
            for one in objects.values()
        }


def take(steps: Iterable[object]) -> Answer:
    """Takes a read apart."""
    answer = Answer()
    for step in steps:
        assert answer.end is None, "nothing comes after the verdict"
        match step:
            case DirectoryObject():
                answer.objects.setdefault(step.id.set, {})[step.place] = step
            case Gone():
                answer.gone.add(step.object)
            case Malformed():
                answer.malformed.append(step)
            case Remark():
                answer.remarks.append(step)
            case End():
                answer.end = step
    assert answer.end is not None
    assert "\n" not in answer.end.reason
    assert slapd.PASSWORD not in answer.end.reason
    assert samba.PASSWORD not in answer.end.reason
    return answer


def of_slapd(port: int, **settings: Any) -> LdapConnector:
    """A connector for an OpenLDAP server of tests."""
    given = {
        "url": f"ldap://127.0.0.1:{port}",
        "base": slapd.SUFFIX,
        "preset": "openldap",
        "bind_dn": slapd.READER,
        "bind_password": slapd.PASSWORD,
    }
    return LdapConnector(LdapConnectionSettings.model_validate(given | settings))


def of_samba(server: samba.Samba, **settings: Any) -> LdapConnector:
    """A connector for the domain of tests."""
    given = {
        "url": server.url,
        "base": samba.BASE,
        "preset": "active_directory",
        "bind_dn": samba.ADMIN,
        "bind_password": samba.PASSWORD,
    }
    return LdapConnector(LdapConnectionSettings.model_validate(given | settings))


def ask(connector: LdapConnector, request: ReadRequest = EVERYTHING, wanted: RequestedFields = WANTED) -> Answer:
    """The steps of a read, by type."""
    return take(connector.read(wanted, request))


def since(connector: LdapConnector, cursor: str, wanted: RequestedFields = WANTED) -> Answer:
    """What changed since then."""
    return ask(connector, ReadRequest(since=cursor), wanted)
