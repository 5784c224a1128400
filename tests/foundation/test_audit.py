"""The rows of the audit log, and their log lines."""

from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from app.foundation.audit import Actor, Audit, AuditAction, audit_page
from app.foundation.database.engine import open_engine, reading, writing
from app.foundation.database.tables import StoreTable
from tests.tables import make_tables

ADA = Actor(name="ada", role="admin", way="console", address="127.0.0.1")


def test_audit_rows_are_logged_after_the_commit(database_url: str) -> None:
    engine = open_engine(database_url)
    make_tables(engine, StoreTable.metadata)
    audit = Audit(clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    with capture_logs() as lines:
        with pytest.raises(ZeroDivisionError), writing(engine) as connection:
            audit.record(connection, ADA, AuditAction.APPROVE, subject="run 7")
            raise ZeroDivisionError
        with writing(engine) as connection:
            audit.record(connection, ADA, AuditAction.DISCARD, subject="run 8", reason="not\nnow")
            assert lines == []
    with reading(engine) as connection:
        rows = [(row.action, row.subject) for row in audit_page(connection)]
    engine.dispose()
    assert rows == [("discarded", "run 8")]
    assert [(line["event"], line["actor"], line["action"], line["subject"], line["outcome"]) for line in lines] == [
        ("audit", "ada", "discarded", "run 8", "done")
    ]


def test_an_action_of_an_enum_is_logged_as_its_text(database_url: str) -> None:
    engine = open_engine(database_url)
    make_tables(engine, StoreTable.metadata)
    with capture_logs() as lines, writing(engine) as connection:
        Audit(clock=lambda: datetime(2026, 1, 1, tzinfo=UTC)).record(connection, ADA, AuditAction.SYNC)
    engine.dispose()
    assert [repr(line["action"]) for line in lines] == ["'sync asked for'"]
