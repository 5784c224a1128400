"""The access impact of dry runs, as it is stored with their plans."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from app.access.decision.decide import DecisionPolicy
from app.access.impact import impact
from app.access.impact.affected import AffectedPairs
from app.access.impact.changed import ChangedOrganization
from app.access.impact.comparison import Steps
from app.access.records import Membership, User
from app.foundation.database.engine import reading
from app.sync.plan import access_impact
from app.sync.plan.stored_access import AccessCount, StoredAccessChange, access_counts, list_access
from app.sync.runs.report import report_lines
from tests.access.test_impact import Impact, naive_impact
from tests.worlds.syncing import SyncedWorld

pytestmark = pytest.mark.slow


def rows_of(world: SyncedWorld, run: Any, page: int = 100) -> list[StoredAccessChange]:
    found: list[StoredAccessChange] = []
    with reading(world.engine) as connection:
        while more := list_access(connection, run.plan_id, after=len(found), limit=page):
            found += more
    assert [row.ordinal for row in found] == list(range(1, len(found) + 1))
    return found


def counts_of(world: SyncedWorld, run: Any) -> list[AccessCount]:
    with reading(world.engine) as connection:
        return access_counts(connection, run.plan_id)


def change(world: SyncedWorld) -> Impact:
    """Ada leaves, a user is added, a group loses its grant, a document becomes public. Returns the impact."""
    before = list(world.directory.records.values())
    world.directory.remove("user", "ada")
    world.directory.add(User(user_id="new", name="New", email=""), Membership(organization_id="acme", user_id="new"))
    world.directory.remove("grant", "acme", "specs", "", "", "eng")
    world.directory.document("handbook", access="public")
    return naive_impact(before, world.directory.records.values(), DecisionPolicy())


def test_rows_and_counts_of_a_dry_run(company: SyncedWorld) -> None:
    expected = change(company)
    run = company.sync(dry_run=True)
    rows = rows_of(company, run)
    assert rows == rows_of(company, run, page=1)
    assert {
        (user_id, row.organization_id, row.kind, resource_id): (row.before or None, row.after or None)
        for row in rows
        for user_id in row.user_ids
        for resource_id in row.resource_ids
    } == expected
    assert sum(row.pairs for row in rows) == len(expected) > 10
    assert {row.effect for row in rows} == {"gain", "lose"}
    assert [row.effect for row in rows] == sorted((row.effect for row in rows), reverse=True)
    counts = counts_of(company, run)
    for count in counts:
        roles = [roles for (_, _, kind, _), roles in expected.items() if kind == count.kind]
        assert count.lose == sum(after is None for _, after in roles)
        assert count.gain == sum(before is None for before, _ in roles)
        assert count.gain + count.lose + count.change == len(roles)
    assert {count.kind for count in counts} == {"organization", "folder", "document"}
    impact = run.report["impact"]
    assert impact["lose"] == sum(count.lose for count in counts)
    assert impact["largest"][0]["kind"] == counts[0].kind
    assert impact["usersWhoLose"] == len({user_id for (user_id, *_), (_, after) in expected.items() if after is None})
    assert impact["organizationCount"] == 1
    assert f"access impact: {impact['lose']} lost, {impact['gain']} gained" in list(report_lines(run.report))


def test_rows_name_their_first_users_and_resources(company: SyncedWorld) -> None:
    change(company)
    names: dict[str, dict[str, str]] = {"users": {}, "resources": {}}
    for row in rows_of(company, company.sync(dry_run=True)):
        assert row.names["users"].keys() == set(row.user_ids[: access_impact.NAMED_IDS])
        for part in names:
            names[part] |= row.names[part]
    # Removed and added users alike.
    assert names["users"]["ada"] == "Ada"
    assert names["users"]["new"] == "New"
    assert names["resources"]["handbook"] == "Handbook"


def test_rows_have_the_changes_of_records_that_cause_them(company: SyncedWorld) -> None:
    change(company)
    company.directory.remove("groupMember", "acme", "core", "dan", "")
    company.directory.folder("archive", access="restricted")
    causes = {
        (row.effect, row.user_ids[0], row.resource_ids[0]): [f"{record['kind']} {word}" for word, record in row.causes]
        for row in rows_of(company, company.sync(dry_run=True))
    }
    assert all(causes.values())
    assert causes["lose", "ada", "acme"] == ["user removed"]
    assert causes["lose", "bob", "salaries"] == ["grant removed"]
    assert causes["lose", "dan", "roadmap"] == ["groupMember removed", "grant removed"]
    assert causes["lose", "bob", "archive"] == ["folder changed"]
    assert causes["gain", "cleo", "handbook"] == ["document changed"]
    assert causes["gain", "new", "acme"] == ["user added", "membership added"]


def test_ids_beyond_the_limit_are_counted(company: SyncedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    change(company)
    complete = company.sync(dry_run=True)
    monkeypatch.setattr(access_impact, "MAX_LISTED_IDS", 6)
    cut = company.sync(dry_run=True)
    listed = [row for row in rows_of(company, cut) if row.resource_ids]
    assert 0 < len(listed) < len(rows_of(company, cut))
    assert [row.pairs for row in rows_of(company, cut)] == [row.pairs for row in rows_of(company, complete)]
    assert counts_of(company, cut) == counts_of(company, complete)
    assert cut.report["impact"] == complete.report["impact"] | {"usersWhoLose": None}


def test_dry_run_without_impact(company: SyncedWorld) -> None:
    company.directory.user("ada", name="Countess")
    run = company.sync(dry_run=True)
    assert run.total("planned") > 0
    assert (rows_of(company, run), counts_of(company, run)) == ([], [])
    assert run.report["impact"]["organizationCount"] == 0
    assert not any("impact" in line for line in report_lines(run.report))


def test_sync_has_no_access_impact(company: SyncedWorld) -> None:
    change(company)
    run = company.sync()
    assert "impact" not in run.report
    assert rows_of(company, run) == []


def test_rows_are_deleted_with_their_plan(company: SyncedWorld) -> None:
    change(company)
    run = company.sync(dry_run=True)
    assert rows_of(company, run)
    company.time.move_on(seconds=100)
    company.runs.prune(timedelta(seconds=10))
    assert rows_of(company, run) == []


def test_large_first_read_is_not_compared(
    world: SyncedWorld, fill: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world.directory)
    compared = world.sync(dry_run=True)
    assert {row.effect for row in rows_of(world, compared)} == {"gain"}
    monkeypatch.setattr(access_impact, "MAX_FIRST_READ", 3)
    run = world.sync(dry_run=True)
    assert rows_of(world, run) == []
    sentence = "access impact: not compared, because it is the first read, of more than 3 records"
    assert sentence in list(report_lines(run.report))
    # Later reads are compared, however large.
    world.sync()
    change(world)
    assert rows_of(world, world.sync(dry_run=True))


def test_change_that_takes_too_many_steps_is_planned_but_not_compared(
    company: SyncedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(company)
    company.directory.organization("zeta")
    company.directory.member("bob", organization_id="zeta")
    spent = 0

    class CountedSteps(Steps):
        def spend(self, steps: int) -> None:
            nonlocal spent
            spent += steps
            super().spend(steps)

    monkeypatch.setattr(impact, "Steps", CountedSteps)
    compared = company.sync(dry_run=True)
    assert {row.organization_id for row in rows_of(company, compared)} == {"acme", "zeta"}
    # The limit is reached in the second organization. A part would look like everything, so no row is stored.
    monkeypatch.setattr(impact, "MAX_STEPS", spent - 5)
    run = company.sync(dry_run=True)
    assert rows_of(company, run) == []
    reason = "too many users and resources are affected in different ways"
    assert f"access impact: not compared, because {reason}" in list(report_lines(run.report))
    assert run.counts == compared.counts


def test_comparison_ends_with_its_run(company: SyncedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison of many organizations may take minutes."""
    change(company)
    company.directory.organization("zeta")
    company.directory.member("bob", organization_id="zeta")
    compared: list[str] = []

    class CancelledPairs(AffectedPairs):
        def __init__(self, sides: Any, changed: ChangedOrganization) -> None:
            super().__init__(sides, changed)
            compared.append(changed.organization_id)
            if len(compared) == 1:
                [running] = [run for run in company.runs.recent() if run.is_running]
                company.runs.cancel(running.run_id)

    monkeypatch.setattr(impact, "AffectedPairs", CancelledPairs)
    assert company.sync(dry_run=True).status == "cancelled"
    assert len(compared) == 1
    compared.append("the next run is not cancelled")
    assert company.sync(dry_run=True).status == "done"
    assert len(compared) == 4
