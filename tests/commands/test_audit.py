"""What the audit log says of commands that change something."""

from pathlib import Path

from app.audit import AuditEntry, audit_page
from app.database.engine import open_engine, reading
from tests.commands.conftest import Usher


def rows(folder: Path) -> list[AuditEntry]:
    """The newest first."""
    engine = open_engine(f"sqlite:///{folder}/usher.db")
    try:
        with reading(engine) as connection:
            return audit_page(connection)
    finally:
        engine.dispose()


def test_reads_of_the_directory_and_what_was_accepted(usher_read: Usher, folder: Path) -> None:
    assert usher_read("directory", "refresh").exit_code == 0
    (folder / "directory.yaml").write_text("organizations: []\n")
    assert usher_read("directory", "refresh").exit_code == 1
    accepted = usher_read("directory", "refresh", "--accept-empty", "directory.yaml", "--reason", "moved\x1b[2J")
    assert accepted.exit_code == 0, accepted.output
    last, failed, first = rows(folder)
    assert (last.action, last.subject) == ("directory refreshed", "revision 2 --accept-empty directory.yaml")
    assert last.reason == "moved·[2J"
    assert last.way == "command"
    assert last.actor.endswith("(command line)")
    assert (failed.subject, first.subject) == ("revision 1", "revision 1")


def test_a_source_that_is_forgotten(usher_read: Usher, folder: Path) -> None:
    assert usher_read("directory", "forget", "directory.yaml").exit_code == 1  # it is configured
    assert rows(folder) == []
    text = (folder / "usher.yaml").read_text().replace("path: directory.yaml", "path: directory.yaml, name: other")
    (folder / "usher.yaml").write_text(text)
    assert usher_read("directory", "refresh").exit_code == 0
    gone = usher_read("directory", "forget", "directory.yaml", "--reason", "it has another name")
    assert gone.exit_code == 0, gone.output
    row = rows(folder)[0]
    assert (row.action, row.reason) == ("source forgotten", "it has another name")
    assert row.subject.startswith("directory.yaml: 1 organization")


def test_an_upgrade_that_changed_something(usher_in: Usher, folder: Path) -> None:
    for _ in range(2):
        assert usher_in("db", "upgrade").exit_code == 0
    (row,) = rows(folder)
    assert row.action == "database upgraded"
