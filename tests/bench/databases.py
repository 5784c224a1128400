"""Creates the databases for measurements: files in a folder, or on a PostgreSQL server."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

NewDatabase = Callable[[str], str]
"""Name → the URL of a new, empty database."""


@contextmanager
def databases(folder: Path, server_url: str | None) -> Iterator[NewDatabase]:
    """Yields a factory of databases: in `folder`, or on the server at `server_url`, where they are dropped again."""
    if server_url is None:
        yield lambda name: f"sqlite:///{folder}/{name}.db"
        return
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(_new_database(server_url))


@contextmanager
def _new_database(server_url: str) -> Iterator[str]:
    server = create_engine(server_url, isolation_level="AUTOCOMMIT")
    name = f"usher_bench_{uuid.uuid4().hex[:16]}"
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'"))
    try:
        yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    finally:
        with server.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        server.dispose()
