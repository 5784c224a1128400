from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from .conftest import BackendWorld, error_of


@contextmanager
def without(world: BackendWorld, database_url: str) -> Iterator[None]:
    """Makes the database unreachable within the block."""
    if database_url.startswith("sqlite"):
        # Processes that have it open keep the file: what is missed here is missed by new connections.
        file = Path(database_url.removeprefix("sqlite:///"))
        world.engine.dispose()
        away = file.rename(file.with_suffix(".away"))
        file.mkdir()
        yield
        file.rmdir()
        away.rename(file)
        return
    url = make_url(database_url)
    server = create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS false"))
        connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"), {"name": url.database}
        )
        yield
        connection.execute(text(f"ALTER DATABASE {url.database} ALLOW_CONNECTIONS true"))
    server.dispose()


def test_outage_and_recovery(world: BackendWorld, database_url: str) -> None:
    tenant = world.tenant()
    tenant("add_users", organizationId="acme", users=[{"userId": "ada"}])

    with without(world, database_url):
        for operation, data in (
            ("get_users", {"organizationId": "acme"}),
            ("add_users", {"organizationId": "acme", "users": [{"userId": "bob"}]}),
            ("get_permissions", {"organizationId": "acme", "userIds": ["ada"]}),
            ("create_workspace", {"ownerEmail": "new@acme.example"}),
        ):
            response = tenant.call(operation, **data)
            assert response.status_code == 503
            assert error_of(response)[0] == "UNAVAILABLE"
            assert response.headers["Retry-After"]
            assert "sqlite" not in error_of(response)[1].lower()
        assert world.app.test_client().get("/healthz").status_code == 200

    assert [user["userId"] for user in tenant("get_users", organizationId="acme")] == ["ada"]
    tenant("add_users", organizationId="acme", users=[{"userId": "bob"}])


@pytest.mark.extended
@pytest.mark.parametrize("operation", ["add_users", "update_users"])
def test_failed_batch_is_rolled_back(world: BackendWorld, operation: str) -> None:
    """The database refuses the last row after all others were written."""
    tenant = world.tenant()
    tenant("add_users", organizationId="acme", users=[{"userId": "u0", "name": "before"}])
    users = [{"userId": f"u{number}", "name": "after"} for number in range(20)]
    if operation == "update_users":
        tenant("add_users", organizationId="acme", users=[{"userId": f"u{number}"} for number in range(1, 20)])
    before = tenant("get_users", organizationId="acme")
    refuse_row(world, "u19")

    response = tenant.call(operation, organizationId="acme", users=users)

    assert response.status_code == 500
    assert error_of(response)[0] == "INTERNAL"
    assert "u19" not in error_of(response)[1]
    assert tenant("get_users", organizationId="acme") == before


def refuse_row(world: BackendWorld, user_id: str) -> None:
    """Makes the database refuse to write this user."""
    with world.engine.begin() as connection:
        if world.engine.dialect.name == "sqlite":
            for event in ("INSERT", "UPDATE"):
                connection.exec_driver_sql(
                    f"CREATE TRIGGER refuse_{event} BEFORE {event} ON user_entry WHEN NEW.user_id = '{user_id}'"
                    " BEGIN SELECT RAISE(ABORT, 'refused'); END"
                )
            return
        connection.exec_driver_sql(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN IF NEW.user_id = '{user_id}' THEN RAISE EXCEPTION 'refused'; END IF; RETURN NEW; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON user_entry FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
