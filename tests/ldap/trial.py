"""Changes a directory at random between random reads of it. After each complete read, compares Usher's decisions with
those computed from the directory itself."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

from app.directory.source import Verdict
from app.sync.plan.selection import Selection
from app.sync.runs.directory_reads import RefreshReport
from tests.ldap.people import GROUPS, Directory, Person
from tests.worlds.application import Application
from tests.worlds.installation import Fault, Reader, beyond
from tests.worlds.tcp_proxy import TcpProxy

NAMES = tuple(f"p{number}" for number in range(6))
ALIASES = tuple(f"{name}@acme.example" for name in NAMES[:3])
"""Addresses that move from one person to another."""

LEAST_COMPARED = 6
"""The least number of comparisons of a run."""

LEAST_WITH_ACCESS = 0.6
"""The share of comparisons in which somebody has access: without access, nobody can have too much."""


class Leavers:
    """A table of aliases of people who have left, and whom it disables.

    A user who had a disabled alias when everything was read remains disabled as long as the table contains the alias.
    """

    def __init__(self, table: Application) -> None:
        self._table = table
        self._bound: dict[str, set[str]] = {}
        self._held: dict[str, set[str]] = {}
        """Alias → the people who ever had it."""

    def put(self, alias: str, *, has_left: bool) -> None:
        self._table.put("leaver", alias, person=alias, has_left=int(has_left))
        if not has_left:
            self._bound.pop(alias, None)

    def drop(self, alias: str) -> None:
        self._table.drop("leaver", alias)
        self._bound.pop(alias, None)

    def aliases(self) -> list[str]:
        """The aliases that disable."""
        return [row["person"] for row in self._table.rows("leaver") if row["has_left"]]

    def note(self, ids: dict[str, frozenset[str]]) -> None:
        """Records the aliases of people."""
        for who, aliases in ids.items():
            for alias in aliases:
                self._held.setdefault(alias, set()).add(who)

    def bind(self, directory: Directory) -> None:
        """Binds the people who have a disabled alias at the time of a complete read."""
        for person in directory.there():
            for alias in person.aliases.intersection(self.aliases()):
                self._bound.setdefault(alias, set()).add(person.id)

    def denying(self, person: Person) -> list[str]:
        """The aliases that disable a person."""
        return [one for one in self.aliases() if one in person.aliases or person.id in self._bound.get(one, ())]

    def denied(self, directory: Directory) -> set[str]:
        """The people who must not have access."""
        return {person.id for person in directory.there() if self.denying(person)}

    def perhaps_denied(self) -> set[str]:
        """The people whom Usher may have bound between two comparisons."""
        return {who for alias in self.aliases() for who in self._held.get(alias, ())}


class Trial:
    """A directory that changes, and an Usher that reads it through a proxy and is pushed to."""

    def __init__(
        self, seed: int, directory: Directory, reader: Reader, between: TcpProxy, leavers: Leavers, *, backup: Path
    ) -> None:
        self._random = Random(seed)
        self.directory = directory
        self._reader = reader
        self._between = between
        self._leavers = leavers
        self._backup = backup
        self._is_saved = self._is_hidden = self._was_restored = False
        self._saved_members = frozenset[str]()
        """The people who had access when the directory was saved."""
        self._changing = Lock()
        """Held while something changes in the middle of a read."""
        self._whole = 20_000
        """Bytes of a full read."""
        self._people = self._addresses = 0
        self._everybody: dict[str, frozenset[str]] = {}
        self.done: list[str] = []
        self.compared = self.with_access = 0
        """Comparisons, and those of them in which a user had access."""
        self._furnish()

    def _furnish(self) -> None:
        """Creates nested containers, people in groups, and one person who never changes."""
        one = self.directory
        team = one.unit("team", one.people)
        for dn in (one.root, one.inside, one.outside, one.people, one.groups, team, one.unit("squad", team)):
            one.add_unit(dn)
        one.add_unit(one.unit("more", one.groups))
        one.add_person(one.person_dn("anchor", one.people), "anchor", "anchor@acme.example")
        homes = (one.people, team, one.unit("squad", team))
        dns = [self._add_person(name, homes[number % 3]) for number, name in enumerate(NAMES)]
        inner = one.group_dn("inner", one.unit("more", one.groups))
        one.add_group(inner, dns[2:5])
        one.add_group(one.group_dn("org-acme", one.groups), [*dns[:2], inner])
        one.add_group(one.group_dn("edit-acme", one.groups), dns[4:])
        self._note()

    def _add_person(self, name: str, parent: str) -> str:
        """Adds a person. One in three has the number of an earlier one."""
        self._people += 1
        number = f"e{self._random.randint(1, self._people) if self._random.random() < 0.3 else self._people}"
        dn = self.directory.person_dn(name, parent)
        self.directory.add_person(dn, number, f"{name}@acme.example")
        return dn

    def _note(self) -> None:
        ids = self.directory.ids()
        self._everybody |= ids
        self._leavers.note(ids)

    def step(self) -> None:
        if self._random.random() < 0.35:
            self._read()
        else:
            self.change()

    def change(self, *, during_read: bool = False) -> None:
        """Changes the directory or the table of leavers, or pushes a record."""
        happens: dict[Callable[[], str], int] = {
            self._let_in: 20,
            self._change_members: 6,
            self._change_person: 8,
            self._change_group: 3,
            self._move_unit: 5,
            self._leave: 5,
            self._push: 4,
        }
        if not during_read:
            happens[self._go_back] = 3 if self._is_saved else 2
            happens[self._hide_or_show] = (8 if self._is_hidden else 2) if self.directory.can_hide else 0
        [one] = self._random.choices(list(happens), list(happens.values()))
        self.done.append(one())
        self._note()

    def _dns(self, filter_: str) -> list[str]:
        """The DNs of entries that may change."""
        one = self.directory
        lasting = (one.root, one.inside, one.outside, one.people, one.groups, one.person_dn("anchor", one.people))
        return [dn for dn in one.found(filter_, one.root) if dn not in lasting]

    def _home(self) -> str:
        """A container for an entry."""
        one = self.directory
        return self._random.choice([one.people, one.people, one.groups, one.inside, one.outside, *self._units()])

    def _units(self) -> list[str]:
        return self._dns(self.directory.unit_filter)

    def _free(self, names: tuple[str, ...], dns: list[str]) -> str | None:
        """A name that no entry has."""
        taken = {dn.partition(",")[0].partition("=")[2] for dn in dns}
        left = [name for name in names if name not in taken]
        return self._random.choice(left) if left else None

    def _let_in(self) -> str:
        """Removes one reason of a person who has no access: of one of those with the fewest reasons."""
        one = self.directory
        reached, there = one.reached(), {person.id for person in one.there()}
        denied: list[list[Callable[[], str]]] = []
        for dn in self._dns(one.person_filter):
            person, reasons = one.person(dn), list[Callable[[], str]]()
            if person.is_off:
                reasons.append(partial(self._switch, dn, one.off[0]))
            if person.id not in there:
                homes = [one.people, *(unit for unit in self._units() if unit.endswith(f",{one.people}"))]
                reasons.append(partial(self._move, dn, self._random.choice(homes)))
            if dn.lower() not in reached:
                reasons.append(partial(self._give_role, dn))
            reasons += [partial(self._set_alias, alias, "is back") for alias in self._leavers.denying(person)]
            denied += [reasons] if reasons else []
        fewest = min(map(len, denied), default=0)
        reasons = self._random.choice([one for one in denied if len(one) == fewest] or [[lambda: "all have access"]])
        return self._random.choice(reasons)()

    def _give_role(self, dn: str) -> str:
        """Adds a person to a group with a role, if there is one."""
        one = self.directory
        groups = [group for group in one.found(one.group_filter, one.groups) if one.role_of(group)]
        if groups:
            group = self._random.choice(groups)
            one.put_into(group, dn)
            return f"{dn} joins {group}"
        elsewhere = [group for group in self._dns(one.group_filter) if one.role_of(group)]
        if elsewhere:
            return self._move(self._random.choice(elsewhere), one.groups)
        group = one.group_dn(GROUPS[0], one.groups)
        one.add_group(group, [dn])
        return f"{group} is added with {dn}"

    def _switch(self, dn: str, value: str) -> str:
        self.directory.set(dn, self.directory.off_attribute, value)
        return f"{dn}: {self.directory.off_attribute} {value}"

    def _move(self, dn: str, home: str) -> str:
        rdn, _, parent = dn.partition(",")
        if home == parent or f",{home}".endswith(f",{dn}"):
            return f"{dn} stays"
        self.directory.move(dn, rdn, home)
        return f"{dn} moves to {home}"

    def _change_members(self) -> str:
        one, groups = self.directory, self._dns(self.directory.group_filter)
        if not groups:
            return "there is no group"
        group = self._random.choice(groups)
        members = {value.decode() for value in one.found(one.group_filter, group)[group].get("member", ())}
        member = self._random.choice([*self._dns(one.person_filter), *self._dns(one.group_filter)])
        if member.lower() in {name.lower() for name in members}:
            one.take_from(group, member)
            return f"{member} leaves {group}"
        gone = sorted(members - {"cn=nobody"})
        if gone and self._random.random() < 0.3:
            member = self._random.choice(gone)
            one.take_from(group, member)
            return f"{member} leaves {group}"
        if member == group:
            return "no group is put into itself"
        one.put_into(group, member)
        return f"{member} joins {group}"

    def _change_person(self) -> str:
        one, chance = self.directory, self._random
        dns = self._dns(one.person_filter)
        name = self._free(NAMES, dns)
        if name is not None and chance.random() < 0.5:
            home = self._home()
            return f"{self._add_person(name, home)} is added"
        dn = chance.choice(dns)
        [how] = chance.choices(("off", "mail", "move", "rename", "delete"), (5, 3, 3, 1, 1))
        if how == "off":
            return self._switch(dn, *chance.choices(one.off, (1, 2)))
        if how == "mail":
            mail = chance.choice([*ALIASES, ALIASES[0].title(), ""])
            one.set(dn, "mail", *([mail] if mail else []))
            return f"{dn}: mail {mail}"
        if how == "delete" and len(dns) > 2:
            one.delete(dn)
            return f"{dn} is deleted"
        if how == "rename":
            return self._rename(dn, one.rdn, name)
        return self._move(dn, self._home())

    def _rename(self, dn: str, attribute: str, name: str | None) -> str:
        if name is None:
            return "no name is free"
        self.directory.move(dn, f"{attribute}={name}", dn.partition(",")[2])
        return f"{dn} is renamed to {name}"

    def _change_group(self) -> str:
        one, chance = self.directory, self._random
        dns = self._dns(one.group_filter)
        name = self._free(GROUPS, dns)
        if name is not None and (chance.random() < 0.3 or not dns):
            dn = one.group_dn(name, chance.choice([one.groups, self._home()]))
            members = chance.sample([*self._dns(one.person_filter), *dns], 2)
            one.add_group(dn, members)
            return f"{dn} is added with {members}"
        dn = chance.choice(dns)
        how = chance.choice(("delete", "rename", "move"))
        if how == "delete" and len(dns) > 2:
            one.delete(dn)
            return f"{dn} is deleted"
        if how == "rename":
            return self._rename(dn, one.group_rdn, name)
        return self._move(dn, chance.choice([one.groups, self._home()]))

    def _move_unit(self) -> str:
        """Moves a container, most of all one of people with access, and every second time to where Usher does not
        read."""
        one, units = self.directory, self._units()
        with_access = [dn for dn in units if any(member.endswith(f",{dn}".lower()) for member in one.dns_with_access())]
        home = self._random.choice([self._home(), one.outside])
        moved = self._move(self._random.choice(with_access or units), home)
        self._perhaps_compare()
        return moved

    def _leave(self) -> str:
        """A person leaves, or is back. Some of those who leave change their address, and remain disabled."""
        how = self._random.choice(("leaves", "leaves", "leaves", "is back", "is dropped"))
        known = self._leavers.aliases() if how != "leaves" else []
        people = [dn for dn in self._with_access() if self.directory.person(dn).aliases]
        if known or not people:
            return self._set_alias(self._random.choice(known), how) if known else "nobody leaves"
        dn = self._random.choice(people)
        aliases = sorted(self.directory.person(dn).aliases, key=lambda alias: "@" not in alias)
        if self._random.random() < 0.5:
            return self._set_alias(self._random.choice(aliases), how)
        self.done.append(self._set_alias(aliases[0], "leaves"))
        self._compare()
        self._write_mail(dn)
        self._perhaps_compare()
        return f"{dn} has another address"

    def _set_alias(self, alias: str, how: str) -> str:
        if how == "is dropped":
            self._leavers.drop(alias)
        else:
            self._leavers.put(alias, has_left=how == "leaves")
        return f"{alias} {how}"

    def _push(self) -> str:
        """Pushes what the directory contains of a person, and disables them afterwards or lets them leave a group."""
        one = self.directory
        dn = self._random.choice(self._with_access())
        person, role = one.person(dn), one.reached().get(dn.lower())
        is_there = dn.lower() in one.dns_in_set()
        user: dict[str, Any] = {"kind": "user", "userId": person.id}
        if is_there:
            user |= {"name": person.id, "email": "", "aliases": sorted(person.aliases), "disabled": person.is_off}
        membership = {"kind": "membership", "organizationId": "acme", "userId": person.id}
        membership |= {"accessRole": role} if role else {}
        self._reader.push("directory", (user, is_there), (membership, role is not None))
        self.done.append(f"{dn} is pushed with the role {role}")
        groups = [
            group
            for group, found in one.found(one.group_filter, one.root).items()
            if dn.encode() in found.get("member", ())
        ]
        if groups and self._random.random() < 0.3:
            one.take_from(groups[0], dn)
            denied = f"{dn} leaves {groups[0]}"
        else:
            denied = self._switch(dn, one.off[1])
        self._perhaps_compare()
        return denied

    def _go_back(self) -> str:
        """Saves the directory. Restores it once somebody has got access and Usher has read that, and writes to it."""
        one = self.directory
        if self._is_saved and not one.members().keys() - self._saved_members:
            return self._let_in()
        if not self._is_saved:
            one.save(self._backup)
            self._is_saved, self._saved_members = True, frozenset(one.members())
            return "the directory is saved"
        self._perhaps_compare()
        one.restore(self._backup)
        self._is_saved, self._was_restored = False, True
        self._write_mail(self._random.choice(self._dns(one.person_filter)))
        self.done.append("the directory is restored and written to")
        self._compare()
        return "both were read"

    def _hide_or_show(self) -> str:
        """Hides from Usher the attribute that disables people, and disables one; shows it the next time."""
        one = self.directory
        self._is_hidden = not self._is_hidden
        if not self._is_hidden:
            one.show()
            return f"{one.off_attribute} is shown"
        self._compare()
        one.hide()
        self.done.append(f"{one.off_attribute} is hidden")
        switched = self._switch(self._random.choice(self._with_access()), one.off[1])
        self._perhaps_compare()
        return switched

    def _with_access(self) -> list[str]:
        """The DNs of those who have access; of all people if nobody has."""
        dns, members = self._dns(self.directory.person_filter), self.directory.dns_with_access()
        return [dn for dn in dns if dn.lower() in members] or dns

    def _write_mail(self, dn: str) -> None:
        """Changes the address of a person to one that nobody ever had."""
        self._addresses += 1
        self.directory.set(dn, "mail", f"new{self._addresses}@acme.example")

    def _perhaps_compare(self) -> None:
        """Every second time."""
        if self._random.random() < 0.5:
            self._compare()

    def _compare(self) -> None:
        """Reads the changes and compares, except in the middle of a read."""
        if not self._changing.locked():
            self._note()
            self.done.append("a read of changes")
            self.compare(self.read("changes"), full=False)

    def _read(self) -> None:
        """A read, which may break, or during which something changes."""
        chance = self._random
        [of] = chance.choices(("changes", "everything", "organization", "user"), (12, 1, 1, 3))
        [how] = chance.choices(("", "cut", "changes", *list(Fault)[1:-1]), (12, 3, 4, 1, 1, 1))
        # A read of changes is short: most of what breaks it must come early.
        share = chance.random() ** 2
        self.done.append(f"a read of {of}, {how}")
        if isinstance(how, Fault):
            self._reader.breaking[0].fault, self._reader.breaking[0].share = how, share
        if how == "cut":
            with self._between.cut(int(self._whole * share)):
                self.read(of)
            return
        if how == "changes":
            self._change_at(int(self._whole * share))
        self._between.passed = 0
        report = self.read(of)
        with self._changing:
            self._between.reset()
        self._between.check()
        if not how and of in {"changes", "everything"}:
            self.compare(report, full=of == "everything")

    def _change_at(self, after: int) -> None:
        """Something changes after so many bytes of what is read."""
        waiting = [after]

        def delay() -> None:
            with self._changing:
                if waiting and self._between.delay is delay and self._between.passed >= waiting[0]:
                    waiting.clear()
                    self.change(during_read=True)

        self._between.delay = delay

    def read(self, of: str) -> RefreshReport:
        if of == "organization":
            return self._reader.read(selection=Selection.of(["acme"]))
        if of == "user":
            return self._reader.read(selection=Selection.of([], [self._random.choice(sorted(self._everybody))]))
        return self._reader.read(full=of == "everything")

    def compare(self, report: RefreshReport, *, full: bool) -> None:
        """After complete reads nobody has too much; after those of everything nobody has too little."""
        if {one.verdict for one in report.sources} != {Verdict.COMPLETE}:
            return
        self._leavers.bind(self.directory)
        denied = self._leavers.denied(self.directory)
        real = {who: role for who, role in self.directory.members().items() if who not in denied}
        found = {who: role for (who, _), role in self._reader.decided(sorted(self._everybody), ["d1"]).items()}
        assert beyond(found, real) == []
        self._was_restored = self._was_restored and not full
        if not self._was_restored:
            perhaps = self._leavers.perhaps_denied()
            assert found == {who: role for who, role in real.items() if who in found or who not in perhaps}
        self.compared += 1
        self.with_access += bool(real)

    def run(self, steps: int) -> None:
        """Lets things happen; a failure names all of them."""
        try:
            self.compare(self.read("everything"), full=True)
            self._whole = self._between.passed
            for _ in range(steps):
                self.step()
            if self._is_hidden:
                self.done.append(self._hide_or_show())
            self.compare(self.read("changes"), full=False)
            last = self.read("everything")
            assert {one.verdict for one in last.sources} == {Verdict.COMPLETE}
            self.compare(last, full=True)
        except Exception as error:
            error.add_note("after " + "\n".join(self.done))
            raise
        assert self.compared >= LEAST_COMPARED, f"{self.compared} reads were complete"
        assert self.with_access >= LEAST_WITH_ACCESS * self.compared, f"somebody had access after {self.with_access}"
