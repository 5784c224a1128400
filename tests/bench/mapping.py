"""Measures the mapping of objects to records.

The objects are in memory, so only rules, records and the spool take time. Times are CPU seconds of this process.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from app.directory.connector import DirectoryObject, Objects, RequestedFields
from app.directory.mapping.source import MappedSource
from app.directory.mapping.spool_file import SpoolFile
from app.directory.source import EVERYTHING, End, Found, ObjectId, ReadRequest, Verdict
from tests.worlds.object_directory import rules_of

USERS = 20_000
GROUPS = 500
_FIVE = """
- from: users
  when: has(it.mail)
  user: {userId: it.objectGUID, name: 'it.givenName + " " + it.sn', email: lower(it.mail), department: it.department,
         disabled: "math.bitAnd(it.userAccountControl, 2) != 0"}
"""
_MEMBERS = """
- from: groups
  when: it.cn.startsWith("org-")
  each: members
  membership: {organizationId: it.cn.substring(4), userId: member.userId, accessRole: '"viewer"'}
"""


def bench_mapping(folder: Path, *, scale: float, rounds: int) -> dict[str, object]:
    """Objects and records a second and core: five expressions an object; and with groups in groups."""
    users, groups = _users(int(USERS * scale)), _groups(int(USERS * scale), int(GROUPS * scale))
    five, _ = _rates(_FIVE, users, SpoolFile(), rounds)
    objects, records = _rates(_FIVE + _MEMBERS, [*users, *groups], SpoolFile.of(folder, "ad"), rounds)
    members = sum(len(one.members) for one in groups)
    return {
        "mapping: objects": f"{len(users):,} users, {len(groups):,} groups with {members:,} members",
        "mapping alone, five expressions an object": f"{five:,.0f} objects a second and core",
        "mapping with members": f"{objects:,.0f} objects, {records:,.0f} records a second and core",
    }


def _rates(rules: str, things: Sequence[DirectoryObject], spool: SpoolFile, rounds: int) -> tuple[float, float]:
    source = MappedSource("ad", _Given(things), rules_of(rules), spool)
    best, records = float("inf"), 0
    for _ in range(rounds):
        began = time.process_time()
        records = sum(isinstance(step, Found) for step in source.read())
        best = min(best, time.process_time() - began)
    return len(things) / best, records / best


class _Given:
    """A connector with fixed objects."""

    def __init__(self, things: Sequence[DirectoryObject]) -> None:
        self._things = things

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
        """Reads all objects."""
        yield from self._things
        yield End(Verdict.COMPLETE, cursor="1")


def _users(number: int) -> list[DirectoryObject]:
    return [
        DirectoryObject(
            ObjectId("users", f"{n:08}"),
            {
                "objectGUID": f"3f2a0000-0000-0000-0000-{n:012}",
                "givenName": f"First{n}",
                "sn": f"Läst{n}",
                "mail": f"U{n}@Corp.Example",
                "department": f"d{n % 40}",
                "userAccountControl": 512,
            },
            _dn(n),
            (_dn(n).lower(),),
        )
        for n in range(number)
    ]


def _groups(users: int, number: int) -> list[DirectoryObject]:
    """One with everybody, and others with an eighth of a percent each, every fifth of them in the next."""
    found = [_group("all", [_dn(n).lower() for n in range(users)])]
    for n in range(number):
        members = [_dn(one).lower() for one in range(n, users, max(users // 100, 1))]
        found.append(_group(str(n), [*members, f"cn=org-{n + 1}"] if n % 5 == 0 else members))
    return found


def _group(name: str, members: Sequence[str]) -> DirectoryObject:
    return DirectoryObject(ObjectId("groups", name), {"cn": f"org-{name}"}, name, (f"cn=org-{name}",), tuple(members))


def _dn(number: int) -> str:
    return f"CN=User {number},OU=People,DC=corp,DC=example"
