"""Ends sessions of a PostgreSQL database."""

from sqlalchemy import create_engine, text

HOLDS_LOCK = "EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory' AND l.granted)"


def end_sessions(url: str, condition: str) -> int:
    """Ends Usher's sessions of that database that the condition on ``a`` (``pg_stat_activity``) picks; how many."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        ended = connection.execute(
            text(
                "SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity a"
                " WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()"
                f" AND starts_with(a.application_name, 'usher') AND {condition}"
            )
        ).scalar_one()
    engine.dispose()
    return int(ended)
