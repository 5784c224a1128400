"""Dry runs on candidates, and the syncs that follow."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from app.access.candidate import open_candidate, shadow_tables
from app.access.decision.decide import DecisionPolicy, PlainQuestion, decide
from app.access.records import Membership, User
from app.access.refresh.pushes import NumberedPush, apply_push
from app.access.sql_view import opened_sql_view
from app.commands.schema import METADATA
from app.directory.bounded import BoundedSource, Policy
from app.directory.pushes import PushedSource
from app.directory.source import EVERYTHING, ReadRequest
from app.foundation.database.engine import is_sqlite, open_engine, reading, writing
from app.sync.ledger.tables import VERIFIED_TABLES
from app.sync.plan.planner import make_plan
from app.sync.runs.directory_reads import read_directory
from tests.worlds.directory import Directory
from tests.worlds.syncing import SyncedWorld

pytestmark = pytest.mark.slow

RECORDS = ("run", "run_key", "run_tally", "plan", "plan_item", "plan_part", "plan_impact", "plan_access")
"""Where it is written down that there was a run, and its plan."""


def everything(world: SyncedWorld, *, but: tuple[str, ...] = RECORDS) -> dict[str, list[Any]]:
    """All rows of all tables, those aside in which a plan is kept."""
    with reading(world.engine) as connection:
        return {
            name: sorted((tuple(row) for row in connection.execute(table.select())), key=repr)
            for name, table in METADATA.tables.items()
            if name not in but
        }


def lets_in(world: SyncedWorld, user_id: str) -> bool:
    question = PlainQuestion(
        user_id=user_id, type="organization", resource_id="acme", organization_id="acme", context=None
    )
    with opened_sql_view(world.engine) as view:
        return decide(view, question, world.time.now, DecisionPolicy()).has_access


def items(world: SyncedWorld, run: Any) -> list[tuple[str, ...]]:
    names = (
        "ordinal",
        "operation",
        "kind",
        "organization_id",
        "container_id",
        "item_id",
        "digest",
        "payload",
        "reason",
    )
    return [tuple(str(getattr(row, name)) for name in names) for row in world.items(run)]


def change(world: SyncedWorld) -> None:
    """Somebody comes, somebody goes, a document is renamed and moved."""
    directory = world.directory
    directory.add(User(user_id="new", name="New", email="new@acme.example"))
    directory.add(Membership(organization_id="acme", user_id="new"))
    for key in [key for key in directory.records if "ada" in key]:
        del directory.records[key]


def test_nothing_but_the_plan_is_written(company: SyncedWorld) -> None:
    change(company)
    before = everything(company)
    assert (lets_in(company, "ada"), lets_in(company, "new")) == (True, False)
    run = company.sync(dry_run=True)
    assert (run.status, run.error) == ("done", None)
    assert run.counts
    assert everything(company) == before
    assert (lets_in(company, "ada"), lets_in(company, "new")) == (True, False)
    assert run.revision == before["access_revision"][-1][0]


def test_the_sync_then_applies_the_plan(company: SyncedWorld) -> None:
    change(company)
    dry = company.sync(dry_run=True)
    planned = items(company, dry)
    assert {item[1] for item in planned} >= {"add_users", "delete_users"}
    done = company.sync()
    assert done.status == "done"
    assert items(company, done) == planned
    assert (lets_in(company, "ada"), lets_in(company, "new")) == (False, True)


def test_plan_of_a_candidate_is_applied_if_the_directory_is_the_same(company: SyncedWorld) -> None:
    change(company)
    dry = company.sync(dry_run=True)
    run = company.sync(plan_id=dry.plan_id)
    assert (run.status, run.error, run.plan_id) == ("done", None, dry.plan_id)
    assert (lets_in(company, "ada"), lets_in(company, "new")) == (False, True)
    assert company.sync().counts == {}


def test_plan_of_a_candidate_is_refused_if_the_directory_differs(company: SyncedWorld) -> None:
    kept = dict(company.directory.records)
    change(company)
    dry = company.sync(dry_run=True)
    # As many steps on as the candidate was, and somewhere else.
    company.directory.records = kept
    company.directory.add(User(user_id="other", name="Other", email="other@acme.example"))
    company.directory.add(Membership(organization_id="acme", user_id="other"))
    run = company.sync(plan_id=dry.plan_id)
    assert run.status == "cancelled"
    assert run.error is not None
    assert "is out of date, because the directory or the backend has changed" in run.error
    assert company.wire.writes == []


def test_first_dry_run_adopts_nothing_and_shows_what_the_sync_will(
    world: SyncedWorld, fill: Callable[[Any], None]
) -> None:
    fill(world.directory)
    world.ask("add_organizations", organizations=[{"organizationId": "acme", "organizationName": "Acme"}])
    before = everything(world, but=(*RECORDS, "ledger"))
    dry = world.sync(dry_run=True)
    assert dry.report["verify"]["adopted"] == 1
    assert everything(world, but=(*RECORDS, "ledger")) == before
    assert world.ledger() == {}
    planned = items(world, dry)
    run = world.sync(plan_id=dry.plan_id)
    assert (run.status, run.error) == ("done", None)
    assert run.report["verify"]["adopted"] == 1
    assert items(world, run) == planned
    assert world.sync().counts == {}


def test_dry_run_begins_no_grace_period(company: SyncedWorld) -> None:
    company.grace = 3600
    change(company)
    dry = company.sync(dry_run=True)
    assert company.items(dry, "waiting")
    assert not any(row.gone_at for row in company.ledger().values())


def test_dry_run_blocks_no_other_writer(company: SyncedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the candidate is read and planned from, another connection writes; SQLite has one writer at a time."""
    change(company)
    other = open_engine(company.engine.url.render_as_string(hide_password=False))
    written: list[bool] = []
    source = company.directory
    read = source.read

    def read_slowly(_request: ReadRequest) -> Any:
        for step in read():
            if not written:
                written.append(True)
                with writing(other) as connection:
                    connection.execute(text("UPDATE run SET calls = calls"))
            yield step

    with open_candidate(company.engine) as candidate:
        monkeypatch.setattr(source, "read", read_slowly)
        report = read_directory(candidate, [source], clock=company.time, on_candidate=True)
        with writing(other) as connection:
            connection.execute(text("UPDATE run SET calls = calls"))
    other.dispose()
    assert written
    assert report.changed


def change_aliases(world: SyncedWorld) -> None:
    """Users come who have aliases."""
    for number in range(3):
        world.directory.user(f"user-{number}", aliases=(f"alias-{number}",))


@pytest.mark.parametrize("stirred", [True, False], ids=["stirred", "calm"])
@pytest.mark.parametrize("merge", ["by key", "of everything"])
@pytest.mark.parametrize("how", [lambda _: None, change, change_aliases], ids=["nothing", "change", "aliases"])
def test_candidate_never_takes_the_write_lock(
    company: SyncedWorld, how: Callable[[SyncedWorld], None], merge: str, stirred: bool
) -> None:
    """Another connection commits before each statement of the candidate. SQLite refuses a transaction that has read
    and then writes to a lasting table, even if it changes no row, once somebody else has written."""
    if not is_sqlite(company.engine):
        pytest.skip("PostgreSQL has no write lock")
    how(company)
    if not stirred:
        company.time.move_on(seconds=3600)
    other = sqlite3.connect(str(company.engine.url.database), isolation_level=None, timeout=0)
    with open_candidate(company.engine) as candidate:

        def write(*_: object) -> None:
            assert other.execute("UPDATE run_tally SET runs = runs + 1").rowcount

        event.listen(candidate, "before_cursor_execute", write)
        sources = [company.directory]
        if merge == "of everything":
            # A source that comes before the others may change what each of them contributes.
            first = Directory()
            first.name = "first"
            sources.insert(0, first)
        read_directory(candidate, sources, clock=company.time, on_candidate=True, is_planned_from=True)
    other.close()


@pytest.mark.parametrize("verify", [False, True])
def test_dry_run_succeeds_while_others_write_constantly(
    company: SyncedWorld, monkeypatch: pytest.MonkeyPatch, verify: bool
) -> None:
    """Another process writes before every statement of the run that has not taken the write lock itself."""
    if not is_sqlite(company.engine):
        pytest.skip("PostgreSQL has no write lock")
    change(company)
    other = sqlite3.connect(str(company.engine.url.database), isolation_level=None, timeout=0, check_same_thread=False)
    written: list[int] = []

    def write(*_: object) -> None:
        with suppress(sqlite3.OperationalError):
            written.append(other.execute("UPDATE run_tally SET runs = runs + 1").rowcount)

    event.listen(Engine, "before_cursor_execute", write)
    try:
        run = company.sync(dry_run=True, verify=verify)
    finally:
        event.remove(Engine, "before_cursor_execute", write)
        other.close()
    assert (run.status, run.error) == ("done", None)
    assert sum(written) > 100


def test_only_what_changes_is_copied(company: SyncedWorld) -> None:
    company.directory.add(User(user_id="new", name="New", email="new@acme.example"))
    with open_candidate(company.engine) as candidate:
        read_directory(candidate, [company.directory], clock=company.time, on_candidate=True)
        with reading(candidate) as connection:
            found = connection.execute(
                text(
                    "SELECT name FROM sqlite_temp_master WHERE type = 'table'"
                    if is_sqlite(connection)
                    else "SELECT relname FROM pg_class WHERE relkind = 'r' AND relpersistence = 't'"
                    " AND relnamespace = pg_my_temp_schema()"
                )
            ).scalars()
            assert set(found) == {
                "access_revision", "model_user", "directory_source", "directory_state", "source_user",
            }  # fmt: skip


def test_every_table_can_be_shadowed_and_counts_on(company: SyncedWorld) -> None:
    with open_candidate(company.engine) as candidate:
        shadow_tables(candidate, VERIFIED_TABLES)
        shadow_tables(candidate, VERIFIED_TABLES)
        with reading(candidate) as one, reading(company.engine) as another:
            for name in ("ledger", "ledger_item", "directory_source"):
                table = METADATA.tables[name]
                assert sorted(map(repr, one.execute(table.select()))) == sorted(
                    map(repr, another.execute(table.select()))
                )
        with candidate.begin() as connection:
            connection.execute(text("DELETE FROM ledger_item"))
            connection.execute(
                METADATA.tables["directory_source"].insert().values(
                    name="another", position=9, reads_begun=0, read_in_force=0, records=0, last_verdict="",
                    last_reason="",
                )
            )  # fmt: skip
    assert company.ledger()


def test_lost_candidate_is_not_mistaken_for_the_database(company: SyncedWorld) -> None:
    with open_candidate(company.engine) as candidate:
        with candidate.connect() as connection:
            connection.invalidate()
        with pytest.raises(Exception, match="the connection that held the candidate was lost"), candidate.connect():
            pass


def test_pushes_during_a_plan_do_not_change_it(company: SyncedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something is pushed whenever the run does anything: while it reads, and while it plans."""
    change(company)
    expected = items(company, company.sync(dry_run=True))
    other = open_engine(company.engine.url.render_as_string(hide_password=False))
    pushes: list[int] = []

    def push() -> None:
        pushes.append(len(pushes) + 1)
        person = User(user_id=f"pushed{pushes[-1]}", name="NumberedPush", email="")
        member = Membership(organization_id="acme", user_id=person.user_id)
        pushed = NumberedPush(
            source="app",
            sequence=pushes[-1],
            previous_sequence=None,
            upserts=[person, member],
            removals=[],
            by="",
        )
        apply_push(other, pushed, configured=[company.directory.name, "app"], only_pushed=True, clock=company.time)

    push()
    sources = [company.directory, BoundedSource(PushedSource("app"), timeout=0, policy=Policy(only_pushed=True))]
    monkeypatch.setattr(company, "sources", sources)
    read = company.directory.read

    def read_and_push(_request: ReadRequest = EVERYTHING) -> Any:
        push()
        yield from read()

    def push_and_plan(*arguments: Any, **further: Any) -> Any:
        push()
        return make_plan(*arguments, **further)

    monkeypatch.setattr(company.directory, "read", read_and_push)
    monkeypatch.setattr("app.sync.runs.engine.make_plan", push_and_plan)
    run = company.sync(dry_run=True)
    other.dispose()
    assert (run.status, run.error) == ("done", None)
    found = items(company, run)
    assert {row[5] for row in found} - {row[5] for row in expected} == {"pushed1", "pushed2"}
    assert len(pushes) == 3


def test_dry_run_plans_from_a_newer_read_of_another_process(
    company: SyncedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that began later ends earlier, and its records are in force."""
    read = company.directory.read
    other = open_engine(company.engine.url.render_as_string(hide_password=False))
    done: list[bool] = []

    def read_twice(_request: ReadRequest = EVERYTHING) -> Any:
        first = list(read())
        if not done:
            done.append(True)
            change(company)
            read_directory(other, [company.directory], clock=company.time)
        yield from first

    monkeypatch.setattr(company.directory, "read", read_twice)
    planned = company.sync(dry_run=True)
    other.dispose()
    assert (planned.status, planned.error) == ("done", None)
    assert items(company, planned)
    monkeypatch.setattr(company.directory, "read", read)
    assert items(company, company.sync()) == items(company, planned)


def test_a_change_of_the_directory_during_a_plan_voids_it(
    company: SyncedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing has changed for long, the access model is not copied for a plan."""
    company.time.move_on(hours=1)

    def change_and_plan(*arguments: Any, **further: Any) -> Any:
        with writing(company.engine) as connection:
            connection.execute(text("UPDATE directory_state SET changes = changes + 1"))
        return make_plan(*arguments, **further)

    monkeypatch.setattr("app.sync.runs.engine.make_plan", change_and_plan)
    run = company.sync(dry_run=True)
    assert (run.status, run.error) == ("failed", "the directory has changed while the plan was made; make it again")
