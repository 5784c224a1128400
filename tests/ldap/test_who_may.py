"""Whatever happens to a directory and to reads of it, nobody has access whom the directory itself denies."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import create_engine

from app.database.engine import open_engine
from app.directory.source import Verdict
from app.plan.selection import Selection
from app.runs.reading import RefreshReport
from app.store.schema import METADATA
from tests.ldap import samba, slapd
from tests.ldap.people import GROUPS, ActiveDirectory, Directory, OpenLdap, source_settings
from tests.ldap.samba import Samba
from tests.ldap.slapd import Slapd
from tests.tables import make_tables
from tests.worlds.application import Application, office_settings
from tests.worlds.installation import Fault, Reader, beyond
from tests.worlds.meddler import Meddler, meddler

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.xdist_group("ldap")]

NAMES = tuple(f"p{number}" for number in range(6))
ALIASES = tuple(f"{name}@acme.example" for name in NAMES[:3])
"""Addresses that move from one person to another."""


class Leavers:
    """A table of aliases of people who have left, and whom it disables.

    A user who had a disabled alias when everything was read remains disabled as long as the table contains the alias.
    """

    def __init__(self, table: Application) -> None:
        self._table = table
        self._bound: dict[str, set[str]] = {}
        self._held: dict[str, set[str]] = {}
        """The alias → everybody who ever had it."""

    def put(self, alias: str, *, has_left: bool) -> None:
        self._table.put("leaver", alias, person=alias, has_left=int(has_left))
        if not has_left:
            self._bound.pop(alias, None)

    def drop(self, alias: str) -> None:
        self._table.drop("leaver", alias)
        self._bound.pop(alias, None)

    def _left(self) -> set[str]:
        return {row["person"] for row in self._table.rows("leaver") if row["has_left"]}

    def note(self, ids: dict[str, frozenset[str]]) -> None:
        """Notes who has which alias."""
        for who, aliases in ids.items():
            for alias in aliases:
                self._held.setdefault(alias, set()).add(who)

    def bind(self, directory: Directory) -> None:
        """Binds those who have a disabled alias at the time of a complete read."""
        for person in directory.there():
            for alias in person.aliases & self._left():
                self._bound.setdefault(alias, set()).add(person.id)

    def denied(self, directory: Directory) -> set[str]:
        """Those who must not get in."""
        left = self._left()
        bound = {who for alias in left for who in self._bound.get(alias, ())}
        return bound | {person.id for person in directory.there() if person.aliases & left}

    def perhaps_denied(self) -> set[str]:
        """Those whom Usher may have bound between two reads that were compared."""
        return {who for alias in self._left() for who in self._held.get(alias, ())}


class Trial:
    """A directory to which things happen, and an Usher that reads it."""

    def __init__(
        self,
        seed: int,
        directory: Directory,
        reader: Reader,
        between: Meddler,
        leavers: Leavers,
        *,
        restore: Callable[[Directory], Iterator[None]] | None = None,
    ) -> None:
        """``restore``: saves the directory; goes on to restore it."""
        self._random = Random(seed)
        self.directory = directory
        self._reader = reader
        self._between = between
        self._leavers = leavers
        self._restore = restore
        self._saved: Iterator[None] | None = None
        self._was_restored = False
        self._whole = 20_000
        """Bytes of a full read."""
        self._people = 0
        self._everybody: dict[str, frozenset[str]] = {}
        self.done: list[str] = []
        self.compared = 0
        self._furnish()

    def _furnish(self) -> None:
        """Two containers in one another, everybody in a group of some kind, and somebody who never changes."""
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
        """A new person; one in three has the number of an earlier one."""
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
        if self._random.random() < 0.3:
            self._read()
        else:
            self.change()

    def change(self) -> None:
        """Something happens to the directory, or to the table of leavers."""
        happens: dict[Callable[[], str], int] = {
            self._change_members: 6,
            self._change_person: 8,
            self._change_group: 3,
            self._move_unit: 3,
            self._leave: 3,
            self._go_back: 1 if self._restore else 0,
        }
        [one] = self._random.choices(list(happens), list(happens.values()))
        self.done.append(one())
        self._note()

    def _dns(self, filter_: str) -> list[str]:
        """What may change: DNs."""
        one = self.directory
        lasting = (one.root, one.inside, one.outside, one.people, one.groups, one.person_dn("anchor", one.people))
        return [dn for dn in one.found(filter_, one.root) if dn not in lasting]

    def _home(self) -> str:
        """A container to put something into."""
        one = self.directory
        units = self._dns(one.unit_filter)
        return self._random.choice([one.people, one.people, one.groups, one.inside, one.outside, *units])

    def _free(self, names: tuple[str, ...], dns: list[str]) -> str | None:
        """A name that nobody has."""
        taken = {dn.partition(",")[0].partition("=")[2] for dn in dns}
        left = [name for name in names if name not in taken]
        return self._random.choice(left) if left else None

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
        rdn, _, parent = dn.partition(",")
        [how] = chance.choices(("off", "mail", "move", "rename", "delete"), (5, 3, 3, 1, 1))
        if how == "off":
            [value] = chance.choices(one.off, (1, 2))
            one.set(dn, one.off_attribute, value)
            return f"{dn}: {one.off_attribute} {value}"
        if how == "mail":
            mail = chance.choice([*ALIASES, ALIASES[0].title(), ""])
            one.set(dn, "mail", *([mail] if mail else []))
            return f"{dn}: mail {mail}"
        if how == "delete" and len(dns) > 2:
            one.delete(dn)
            return f"{dn} is deleted"
        if how == "rename":
            if name is None:
                return "no name is free"
            one.move(dn, f"{one.rdn}={name}", parent)
            return f"{dn} is renamed to {name}"
        home = self._home()
        if home == parent:
            return f"{dn} stays"
        one.move(dn, rdn, home)
        return f"{dn} moves to {home}"

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
        rdn, _, parent = dn.partition(",")
        how = chance.choice(("delete", "rename", "move"))
        if how == "delete" and len(dns) > 2:
            one.delete(dn)
            return f"{dn} is deleted"
        if how == "rename" and name is not None:
            one.move(dn, f"{one.group_rdn}={name}", parent)
            return f"{dn} is renamed to {name}"
        home = chance.choice([one.groups, self._home()])
        if home == parent:
            return f"{dn} stays"
        one.move(dn, rdn, home)
        return f"{dn} moves to {home}"

    def _move_unit(self) -> str:
        dn = self._random.choice(self._dns(self.directory.unit_filter))
        rdn, _, parent = dn.partition(",")
        home = self._home()
        if home == parent or f",{home}".endswith(f",{dn}"):
            return f"{dn} stays"
        self.directory.move(dn, rdn, home)
        return f"{dn} moves to {home}"

    def _leave(self) -> str:
        alias = self._random.choice([*ALIASES, *(f"e{number}" for number in range(1, self._people + 1))])
        how = self._random.choice(("leaves", "leaves", "is back", "is dropped"))
        if how == "is dropped":
            self._leavers.drop(alias)
        else:
            self._leavers.put(alias, has_left=how == "leaves")
        return f"{alias} {how}"

    def _go_back(self) -> str:
        """Saves the directory. Restores it the next time, and writes to it."""
        assert self._restore is not None
        if self._saved is None:
            self._saved = self._restore(self.directory)
            next(self._saved)
            return "the directory is saved"
        list(self._saved)
        self._saved, self._was_restored = None, True
        self.directory.connect()
        self.done.append("the directory is restored")
        return self._change_person()

    def _read(self) -> None:
        """A read, which may break, or during which something changes."""
        chance = self._random
        [of] = chance.choices(("changes", "everything", "organization", "user"), (12, 1, 1, 3))
        [how] = chance.choices(("", "cut", "changes", *list(Fault)[1:-1]), (8, 3, 4, 1, 1, 1))
        share = chance.random()
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
        self._between.forget()
        if not how and of in {"changes", "everything"}:
            self.compare(report, full=of == "everything")

    def _change_at(self, after: int) -> None:
        """Something changes after so many bytes of what is read."""
        waiting = [after]

        def delay() -> None:
            if waiting and self._between.passed >= waiting[0]:
                waiting.clear()
                self.change()

        self._between.delay = delay

    def read(self, of: str) -> RefreshReport:
        if of == "organization":
            return self._reader.read(asked=Selection.of(["acme"]))
        if of == "user":
            return self._reader.read(asked=Selection.of([], [self._random.choice(sorted(self._everybody))]))
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

    def run(self, steps: int) -> None:
        """Lets things happen; a failure names all of them."""
        try:
            self.compare(self.read("everything"), full=True)
            self._whole = self._between.passed
            for _ in range(steps):
                self.step()
            self.compare(self.read("changes"), full=False)
            last = self.read("everything")
            assert {one.verdict for one in last.sources} == {Verdict.COMPLETE}
            self.compare(last, full=True)
        except AssertionError as error:
            error.add_note("after " + "\n".join(self.done))
            raise
        assert self.compared > steps / 12, "hardly any read was complete"


def tried(
    seed: int,
    steps: int,
    directory: Directory,
    between: Meddler,
    folder: Path,
    *,
    login: dict[str, str],
    restore: Callable[[Directory], Iterator[None]] | None = None,
) -> None:
    """A trial with a table of leavers in SQLite."""
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    make_tables(engine, METADATA)
    office = create_engine(f"sqlite:///{folder}/office.db")
    table = Application(office)
    table.begin()
    table.put("doc", "d1", title="d1", access="organizationPrivate", owner=None)
    sources = [
        source_settings(directory, f"ldap://127.0.0.1:{between.port}", **login),
        office_settings(f"sqlite:///{folder}/office.db"),
    ]
    trial = Trial(seed, directory, Reader(engine, sources, folder / "spool"), between, Leavers(table), restore=restore)
    trial.run(steps)
    engine.dispose()
    office.dispose()


@pytest.mark.parametrize("seed", range(2))
def test_nobody_has_access_whom_openldap_denies(own_slapd: Slapd, seed: int, tmp_path: Path) -> None:
    """Full reads, reads of changes and of parts, with failures, changes in the middle and restored backups."""

    def restore(_: Directory) -> Iterator[None]:
        backup = own_slapd.saved()
        yield
        own_slapd.stop()
        own_slapd.restore(backup)
        own_slapd.start()

    with meddler("127.0.0.1", own_slapd.port) as between:
        login = {"preset": "openldap", "bind_dn": slapd.READER, "bind_password": slapd.PASSWORD}
        tried(seed, 80, OpenLdap(own_slapd), between, tmp_path, login=login, restore=restore)


def test_nobody_has_access_whom_active_directory_denies(domain: Samba, tmp_path: Path) -> None:
    """The same in a corner of a domain."""
    root = f"OU=Trial,OU=Elsewhere,{samba.BASE}"
    with meddler(domain.host, 389) as between:
        directory = ActiveDirectory(domain, root)
        try:
            login = {"preset": "active_directory", "bind_dn": samba.RIGHTFUL, "bind_password": samba.PASSWORD}
            tried(3, 40, directory, between, tmp_path, login=login)
        finally:
            directory.clear()
