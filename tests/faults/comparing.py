"""Compares the backend and the ledger with the expected state."""

from typing import Any

from tests.faults.world import FaultyWorld
from tests.worlds.company import Held, desired

_LEVELS = {"organization": "organizationUser", "folder": "folderUser", "document": "documentUser"}


def differences(world: FaultyWorld, *, silent: bool = False) -> list[str]:
    """Where the backend is not as the directory wants it; empty when all is well.

    ``silent``: writes were confirmed and lost. Of a group without members nobody can find that out: no operation reads
    groups.
    """
    wanted = desired(world.company.records, world.time())
    held = world.held()
    closed = {name for name, (_fields, disabled) in wanted["organizations"].items() if disabled}
    found: list[str] = []
    for name in ("organizations", "folders", "documents", "users"):
        here = {key: value for key, value in held[name].items() if name == "organizations" or key[0] not in closed}
        found += [f"{name}: {key} is missing" for key in wanted[name].keys() - here.keys()]
        found += [f"{name}: {key} is too much" for key in here.keys() - wanted[name].keys()]
        found += [
            f"{name}: {key} is {here[key]}, not {wanted[name][key]}"
            for key in wanted[name].keys() & here.keys()
            if not _same(here[key], wanted[name][key])
        ]
    # A group cannot be deleted: one that is gone stays behind without members.
    filled = {key[:2] for key in wanted["members"]}
    found += [f"groups: {key} is missing" for key in wanted["groups"] - held["groups"] if not silent or key in filled]
    members = {key for key in held["members"] if key[0] not in closed}
    found += [f"members: {key}" for key in members ^ wanted["members"]]
    return sorted(found)


def ledger_differences(world: FaultyWorld, *, silent: bool = False) -> list[str]:
    """Rows of the ledger that differ from the backend, except those of disabled organizations."""
    held = world.held()
    closed = {name for name, (_fields, disabled) in held["organizations"].items() if disabled}
    there = {key: row for key, row in world.ledger().items() if key[0] == "organization" or key[1] not in closed}
    wanted = _as_keys(held, closed)
    wanted["group"] = {key for key in wanted["group"] if key in there or _has_members(held, key)}
    every = set().union(*wanted.values())
    found = [f"not in the ledger: {key}" for key in every - there.keys()]
    found += [f"only in the ledger: {key}" for key in there.keys() - every if not silent or key[0] != "group"]
    for key, row in there.items():
        if not row.certain:
            found.append(f"uncertain: {key}")
        elif key in every:
            found += _compared(held, key, row)
    return sorted(found)


def _compared(held: Held, key: tuple[str, str, str, str], row: Any) -> list[str]:
    kind, organization, container, item = key
    expected: object
    recorded: object
    if kind == "organization":
        expected, recorded = held["organizations"][item][1], bool(row.disabled)
    elif kind == "folder":
        _fields, parent, own = held["folders"][organization, item]
        expected, recorded = (parent, own or ""), (row.parent_id, row.access_type)
    elif kind == "document":
        expected, recorded = held["documents"][organization, item][1], row.parent_id
    elif kind in _LEVELS.values():
        level = next(level for level, named in _LEVELS.items() if named == kind)
        expected, recorded = held["users"][organization, level, container, item][1], row.access_role
    else:
        return []
    return [] if expected == recorded else [f"{key}: the ledger contains {recorded}, the backend {expected}"]


def _as_keys(held: Held, closed: set[str]) -> dict[str, set[tuple[str, str, str, str]]]:
    def open_ones(some: Any) -> list[Any]:
        return [key for key in some if key[0] not in closed]

    keys: dict[str, set[tuple[str, str, str, str]]] = {
        "organization": {("organization", name, "", name) for name in held["organizations"]},
        "folder": {("folder", organization, "", name) for organization, name in open_ones(held["folders"])},
        "document": {("document", organization, "", name) for organization, name in open_ones(held["documents"])},
        "group": {("group", organization, "", name) for organization, name in open_ones(held["groups"])},
        "groupMember": {
            ("groupMember", organization, group, user) for organization, group, user in open_ones(held["members"])
        },
        "user": {
            (_LEVELS[level], organization, container, user)
            for organization, level, container, user in open_ones(held["users"])
        },
    }
    return keys


def _has_members(held: Held, key: tuple[str, str, str, str]) -> bool:
    return any(member[:2] == (key[1], key[3]) for member in held["members"])


def _same(here: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """What the backend holds beside the wanted fields does not matter: it adds some of its own."""
    fields = {name: value for name, value in wanted[0].items() if value is not None}
    return all(here[0].get(name) == value for name, value in fields.items()) and here[1:] == wanted[1:]
