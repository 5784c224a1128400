"""Tests that failed reads do not damage the access model: a base class for every source.

After any failed read the access model has either its previous content or that of a complete read.
"""

import itertools
import json
import random
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import Engine

from app.access.export import export_records
from app.access.records import Membership, User
from app.commands.schema import METADATA
from app.directory.bounded import BoundedSource, Policy
from app.directory.source import Verdict
from app.directory.source_settings import GuardSettings
from app.directory.testing.world import Content, Person, SourceWorld, changed, some_content
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine, reading
from app.sync.runs.directory_reads import read_directory
from tests.worlds.files import file_source


class FaultyReads:
    """A subclass has a fixture ``world``, whose content is replaced."""

    breaks: Iterable[float] = (0.0, 0.02, 0.3, 0.9)
    """The shares of a complete read after which the connection breaks."""

    def test_a_read_that_breaks_leaves_nothing_between(self, world: SourceWorld, tmp_path: Path) -> None:
        """Repeats complete and incremental reads while the directory changes."""
        engine = open_engine(f"sqlite:///{tmp_path}/usher.db")
        METADATA.create_all(engine)
        organizations = file_source(tmp_path / "organizations.jsonl", name="organizations")
        chance, content, broken = random.Random(20261122), some_content(20), 0

        def is_read(full_every: float) -> bool:
            (tmp_path / "organizations.jsonl").write_text("\n".join(map(organization, content.teams)))
            # Nothing is refused for being too much: that would hide what a read did.
            policy = Policy(full_every=full_every, guard=GuardSettings(percent=100))
            people = BoundedSource(world.source(), timeout=30, policy=policy)
            report = read_directory(engine, [organizations, people], clock=utc_now, guard=GuardSettings(percent=100))
            return report.sources[1].verdict is Verdict.COMPLETE

        world.set_content(content)
        assert is_read(0)
        for number, (full_every, share) in enumerate(itertools.product((3600, 0), self.breaks)):
            before = in_force(engine)
            content = changed(content, chance, 2 * number)
            world.set_content(content)
            with world.cut(share):
                went_well = is_read(full_every)
            broken += not went_well
            # A team whose organization the other source has removed has no members.
            there = {team: members for team, members in before.teams.items() if team in content.teams}
            wanted = content if went_well else Content(before.people, there)
            assert in_force(engine) == wanted, f"cut after {share:g} of it"
        assert broken >= len(tuple(self.breaks)), "hardly anything broke"
        assert is_read(3600)
        assert in_force(engine) == content
        engine.dispose()


def organization(team: str) -> str:
    return json.dumps({"kind": "organization", "organizationId": team, "organizationName": team})


def in_force(engine: Engine) -> Content:
    """The people and teams of the access model."""
    people: dict[str, Person] = {}
    teams: dict[str, set[str]] = {}
    with reading(engine) as connection:
        for record in export_records(connection):
            if isinstance(record, User):
                people[record.user_id] = Person(record.name, record.email)
            elif isinstance(record, Membership):
                teams.setdefault(record.organization_id, set()).add(record.user_id or "")
    return Content(people, {team: frozenset(members) for team, members in teams.items()})
