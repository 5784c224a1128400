"""The limit of attempts to create workspaces: may this network address try once more?

A sliding window of attempts in the database, so that all processes of all nodes count together. Attempts count
whether or not a workspace comes of them; those that are turned away for being too many do not.
"""

import ipaddress

from sqlalchemy import delete, func, insert, select

from app.backend.http.call import Backend
from app.backend.http.dispatch import one_writer
from app.backend.ids import new_id
from app.backend.workspaces.tables import WORKSPACE_ATTEMPT
from app.edge.throttle import TooManyRequests

_WINDOW_MS = 3_600_000
_IPV6_SITE = 64


def count_attempt(backend: Backend, address: str, now: int) -> None:
    """Notes an attempt at ``now`` (epoch milliseconds). Raises ``TooManyRequests`` when there were too many within the
    hour.
    """
    counted = counted_address(address)
    with backend.writing() as connection:
        one_writer(connection, f"workspace attempts {counted}")
        connection.execute(delete(WORKSPACE_ATTEMPT).where(WORKSPACE_ATTEMPT.c.attempted_at <= now - _WINDOW_MS))
        number, oldest = connection.execute(
            select(func.count(), func.min(WORKSPACE_ATTEMPT.c.attempted_at)).where(
                WORKSPACE_ATTEMPT.c.address == counted
            )
        ).one()
        if number >= backend.settings.workspaces_per_hour:
            wait = max(1, -(-(oldest + _WINDOW_MS - now) // 1000))
            raise TooManyRequests(
                "too many workspaces were created from this address; try again later", retry_after=wait
            )
        connection.execute(
            insert(WORKSPACE_ATTEMPT).values(address=counted, attempt_id=new_id(backend.entropy), attempted_at=now)
        )


def counted_address(address: str) -> str:
    """Under which address attempts are counted: an IPv6 site hands out as many addresses as anyone likes, so it
    counts as one.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        return str(ipaddress.ip_network((ip, _IPV6_SITE), strict=False))
    return str(ip)
