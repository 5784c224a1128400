"""Records the statements of an engine."""

from sqlalchemy import Engine, event

from app.foundation.database.engine import is_sqlite


def heard(engine: Engine) -> list[str]:
    """The statements from now on, on one line each. On SQLite, they include direct calls of the driver."""
    found: list[str] = []

    def note(statement: str) -> None:
        found.append(" ".join(statement.split()))

    if is_sqlite(engine):
        event.listen(engine, "checkout", lambda driver, *_: driver.set_trace_callback(note))
    else:
        event.listen(engine, "before_cursor_execute", lambda _, __, statement, *___: note(statement))
    return found
