"""Rate limiter for attempts to create workspaces, which need no credentials.

It counts the attempts of a network address in a sliding window in the database, which all processes of all nodes share.
Failed attempts count, throttled ones do not.
"""

from math import ceil

from sqlalchemy import delete, func, insert, select

from app.backend.http.call import Backend
from app.backend.ids import new_id
from app.backend.security.tables import WORKSPACE_ATTEMPT
from app.backend.storage.locks import lock_for_writing
from app.contract.errors import PermissionDenied
from app.http.throttle import TooManyRequests, network_of

_WINDOW_MS = 3_600_000
_MAX_ADDRESS_LENGTH = 64


def count_attempt(backend: Backend, address: str, now: int) -> None:
    """Stores an attempt at ``now`` (epoch milliseconds). Raises ``TooManyRequests`` if there were too many within the
    hour, and ``PermissionDenied`` if the settings allow none."""
    limit = backend.settings.workspaces_per_hour
    if not limit:
        raise PermissionDenied("this backend creates no workspaces: self_hosted_backend.workspaces_per_hour is 0")
    network = network_of(address)[:_MAX_ADDRESS_LENGTH]
    columns = WORKSPACE_ATTEMPT.c
    with backend.writing() as connection:
        lock_for_writing(connection, f"workspace attempts {network}")
        connection.execute(delete(WORKSPACE_ATTEMPT).where(columns.attempted_at <= now - _WINDOW_MS))
        count, oldest = connection.execute(
            select(func.count(), func.min(columns.attempted_at)).where(columns.address == network)
        ).one()
        if count >= limit:
            wait = max(1, ceil((oldest + _WINDOW_MS - now) / 1000))
            raise TooManyRequests(
                "too many attempts to create a workspace from this network; try again later", retry_after=wait
            )
        connection.execute(
            insert(WORKSPACE_ATTEMPT).values(address=network, attempt_id=new_id(backend.entropy), attempted_at=now)
        )
