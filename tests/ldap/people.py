"""People, groups and containers in a directory, and the members of groups, computed without Usher's code."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from tests.ldap import samba, slapd

GROUPS = ("org-acme", "edit-acme", "inner", "innermost", "org-more", "plain")
"""The names that a group may have. Members of org-… may view, those of edit-… may edit."""


class Person(NamedTuple):
    """A person who is in the set that Usher reads."""

    id: str
    is_off: bool
    aliases: frozenset[str]


class Directory:
    """A directory as its administrator changes and searches it.

    Usher reads what is below ``inside``: people below ``people``, and groups below ``groups``.
    """

    rdn = group_rdn = unit_rdn = ""
    """The attributes that name a person, a group and a container."""
    person_filter = group_filter = id_attribute = number_attribute = off_attribute = ""
    off: tuple[str, str]
    """The values of ``off_attribute`` of an enabled and of a disabled person."""
    unit_filter = "(objectClass=organizationalUnit)"
    can_hide = False
    """Whether ``off_attribute`` can be hidden from Usher."""

    def __init__(self, url: str, admin: str, password: str, root: str) -> None:
        self._login = (url, admin, password)
        self.root = root
        self.inside, self.outside = self.unit("inside", root), self.unit("outside", root)
        self.people, self.groups = self.unit("people", self.inside), self.unit("groups", self.inside)
        self.connect()

    def connect(self) -> None:
        """Logs in, also after the server was restarted."""
        import ldap

        url, admin, password = self._login
        self._ldap = ldap
        self._connection = ldap.initialize(url)
        self._connection.set_option(ldap.OPT_REFERRALS, 0)
        self._connection.simple_bind_s(admin, password)

    def unit(self, name: str, parent: str) -> str:
        return f"{self.unit_rdn}={name},{parent}"

    def person_dn(self, name: str, parent: str) -> str:
        return f"{self.rdn}={name},{parent}"

    def group_dn(self, name: str, parent: str) -> str:
        return f"{self.group_rdn}={name},{parent}"

    def add_unit(self, dn: str) -> None:
        self.add(dn, objectClass="organizationalUnit")

    def add_person(self, dn: str, number: str, mail: str) -> None:
        raise NotImplementedError

    def add_group(self, dn: str, members: Sequence[str]) -> None:
        raise NotImplementedError

    def add(self, dn: str, **attributes: str | Sequence[str]) -> None:
        values = {name: [given] if isinstance(given, str) else given for name, given in attributes.items()}
        self._connection.add_s(dn, [(name, [one.encode() for one in given]) for name, given in values.items() if given])

    def set(self, dn: str, attribute: str, *values: str) -> None:
        """Replaces the values of an attribute. Without values, deletes it."""
        self._connection.modify_s(dn, [(self._ldap.MOD_REPLACE, attribute, [one.encode() for one in values] or None)])

    def put_into(self, group: str, member: str) -> None:
        self._connection.modify_s(group, [(self._ldap.MOD_ADD, "member", [member.encode()])])

    def take_from(self, group: str, member: str) -> None:
        self._connection.modify_s(group, [(self._ldap.MOD_DELETE, "member", [member.encode()])])

    def move(self, dn: str, rdn: str, parent: str) -> None:
        self._connection.rename_s(dn, rdn, parent)

    def delete(self, dn: str) -> None:
        self._connection.delete_s(dn)

    def save(self, folder: Path) -> None:
        """Makes a backup."""
        raise NotImplementedError

    def restore(self, folder: Path) -> None:
        """Replaces everything with the backup."""
        raise NotImplementedError

    def hide(self) -> None:
        """Hides ``off_attribute`` from Usher."""
        raise NotImplementedError

    def show(self) -> None:
        """Shows it again."""
        raise NotImplementedError

    def clear(self) -> None:
        """Deletes ``root`` and everything below it."""
        for dn in sorted(self.found("(objectClass=*)", self.root), key=lambda one: -one.count(",")):
            self.delete(dn)

    def found(self, filter_: str, base: str) -> dict[str, Mapping[str, Sequence[bytes]]]:
        """DN → attributes of the entries below ``base``, in an order that does not depend on the server."""
        wanted = ["*", self.id_attribute]
        entries = self._connection.search_s(base, self._ldap.SCOPE_SUBTREE, filter_, wanted)
        return dict(sorted((dn, attributes) for dn, attributes in entries if dn is not None))

    def id_of(self, attributes: Mapping[str, Sequence[bytes]]) -> str:
        raise NotImplementedError

    def is_off(self, attributes: Mapping[str, Sequence[bytes]]) -> bool:
        raise NotImplementedError

    def ids(self) -> dict[str, frozenset[str]]:
        """The id → the aliases of all people of the directory."""
        found = self.found(self.person_filter, self.root).values()
        return {self.id_of(one): frozenset(self._aliases(one)) for one in found}

    def _aliases(self, attributes: Mapping[str, Sequence[bytes]]) -> Iterator[str]:
        for name in (self.number_attribute, "mail"):
            for value in attributes.get(name, ()):
                yield value.decode().lower()

    def person(self, dn: str) -> Person:
        return self._person(self.found(self.person_filter, dn)[dn])

    def _person(self, attributes: Mapping[str, Sequence[bytes]]) -> Person:
        return Person(self.id_of(attributes), self.is_off(attributes), frozenset(self._aliases(attributes)))

    def there(self) -> list[Person]:
        """The people in the set."""
        return list(self._there().values())

    def _there(self) -> dict[str, Person]:
        return {dn.lower(): self._person(one) for dn, one in self.found(self.person_filter, self.people).items()}

    def role_of(self, group: str) -> str | None:
        """The role of a group's members."""
        name, dash, _ = group.partition(",")[0].partition("=")[2].partition("-")
        return {"org": "viewer", "edit": "editor"}.get(name) if dash else None

    def reached(self) -> dict[str, str]:
        """The DN of everything that is in a group with a role, or in a group in it → the role."""
        groups = {
            dn.lower(): [value.decode().lower() for value in one.get("member", ())]
            for dn, one in self.found(self.group_filter, self.groups).items()
        }
        found: dict[str, str] = {}
        for start in groups:
            if (role := self.role_of(start)) is None:
                continue
            seen, left = set[str](), [start]
            while left:
                dn = left.pop()
                if dn not in seen:
                    seen.add(dn)
                    left += groups.get(dn, ())
                    found[dn] = "editor" if "editor" in (role, found.get(dn)) else "viewer"
        return found

    def roles(self) -> dict[str, str]:
        """The id of a person in the set → the role that groups give to them."""
        reached = self.reached()
        return {person.id: reached[dn] for dn, person in self._there().items() if dn in reached}

    def members(self) -> dict[str, str]:
        """The same without those who are disabled."""
        off = {person.id for person in self.there() if person.is_off}
        return {who: role for who, role in self.roles().items() if who not in off}

    def dns_in_set(self) -> frozenset[str]:
        """The DNs of the people in the set, in lower case."""
        return frozenset(self._there())

    def dns_with_access(self) -> list[str]:
        """The DNs of the members, in lower case."""
        members = self.members()
        return [dn for dn, person in self._there().items() if person.id in members]


class OpenLdap(Directory):
    """OpenLDAP: members are DNs as they were written. No rename of the person changes them."""

    rdn, group_rdn, unit_rdn = "uid", "cn", "ou"
    person_filter, group_filter = "(objectClass=inetOrgPerson)", "(objectClass=groupOfNames)"
    id_attribute, number_attribute = "entryUUID", "employeeNumber"
    off_attribute, off = "employeeType", ("staff", "left")
    can_hide = True

    def __init__(self, server: slapd.Slapd) -> None:
        self._server = server
        super().__init__(server.url, slapd.ADMIN, slapd.PASSWORD, f"ou=trial,{slapd.SUFFIX}")

    def save(self, folder: Path) -> None:
        folder.write_text(self._server.saved())

    def restore(self, folder: Path) -> None:
        self._server.stop()
        self._server.restore(folder.read_text())
        self._server.start()
        self.connect()

    def hide(self) -> None:
        self._server.hide(self.off_attribute)
        self.connect()

    def show(self) -> None:
        self._server.show()
        self.connect()

    def add_person(self, dn: str, number: str, mail: str) -> None:
        self.add(
            dn, objectClass="inetOrgPerson", cn="P", sn="P", employeeNumber=number, mail=mail, employeeType=self.off[0]
        )

    def add_group(self, dn: str, members: Sequence[str]) -> None:
        # No group may be empty.
        self.add(dn, objectClass="groupOfNames", member=["cn=nobody", *members])

    def id_of(self, attributes: Mapping[str, Sequence[bytes]]) -> str:
        return attributes["entryUUID"][0].decode()

    def is_off(self, attributes: Mapping[str, Sequence[bytes]]) -> bool:
        return attributes.get("employeeType") == [b"left"]


class ActiveDirectory(Directory):
    """Samba: it changes members when a person is moved, renamed or deleted."""

    rdn, group_rdn, unit_rdn = "CN", "CN", "OU"
    person_filter, group_filter = "(&(objectClass=user)(objectCategory=person))", "(objectClass=group)"
    id_attribute, number_attribute = "objectGUID", "employeeID"
    off_attribute, off = "userAccountControl", ("544", "546")

    def __init__(self, server: samba.Samba, root: str) -> None:
        self._server = server
        super().__init__(server.url, samba.ADMIN, samba.PASSWORD, root)
        self._accounts = 0

    def save(self, folder: Path) -> None:
        self._server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        self._server.save(folder)
        self._server.start()
        self.connect()

    def restore(self, folder: Path) -> None:
        self._server.stop()
        self._server.restore(folder)
        self._server.start()
        self.connect()

    def _account(self) -> str:
        self._accounts += 1
        return f"trial{self._accounts}"

    def add_person(self, dn: str, number: str, mail: str) -> None:
        given = {"employeeID": number, "mail": mail, "userAccountControl": self.off[0]}
        self.add(dn, objectClass="user", sAMAccountName=self._account(), **given)

    def add_group(self, dn: str, members: Sequence[str]) -> None:
        self.add(dn, objectClass="group", sAMAccountName=self._account(), member=members)

    def id_of(self, attributes: Mapping[str, Sequence[bytes]]) -> str:
        return str(UUID(bytes_le=attributes["objectGUID"][0]))

    def is_off(self, attributes: Mapping[str, Sequence[bytes]]) -> bool:
        return bool(int(attributes["userAccountControl"][0]) & 2)


def source_settings(directory: Directory, url: str, **login: Any) -> dict[str, Any]:
    """The settings of a source of ``inside``."""
    is_off = {
        "employeeType": 'it.employeeType == "left"',
        "userAccountControl": "math.bitAnd(it.userAccountControl, 2) != 0",
    }
    membership = {"organizationId": '"acme"', "userId": "member.userId"}
    return {
        "type": "ldap",
        "name": "directory",
        "url": url,
        "base": directory.inside,
        "sets": {"users": {"base": directory.people}, "groups": {"base": directory.groups}},
        "connect_timeout": 5,
        "answer_timeout": 20,
        "page_size": 3,
        "map": [
            {
                "from": "users",
                "aliases": [f"it.{directory.number_attribute}", "it.mail"],
                "user": {
                    "userId": f"it.{directory.id_attribute}",
                    "name": f"it.{directory.number_attribute}",
                    "email": '""',
                    "disabled": is_off[directory.off_attribute],
                },
            },
            *(
                {
                    "from": "groups",
                    "when": f'it.cn.startsWith("{name}-")',
                    "each": "members",
                    "membership": membership | {"accessRole": f'"{role}"'},
                }
                for name, role in (("org", "viewer"), ("edit", "editor"))
            ),
        ],
        **login,
    }
