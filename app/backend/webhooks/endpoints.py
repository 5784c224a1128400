"""Loads and stores the endpoints of advanced webhooks."""

import base64
import random
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from sqlalchemy import Connection, RowMapping, delete, select

from app.backend.security.vault import Vault
from app.backend.storage import json_columns
from app.backend.storage.rows import upsert
from app.backend.webhooks.tables import WEBHOOK_ENDPOINT
from app.foundation.clock import from_epoch_ms, utc_text

MAX_ENDPOINTS = 250
"""Endpoints of one API key. Each event is written once per endpoint."""

GONE = "gone"
"""The reason to disable an endpoint that answered with status 410."""
FAILING = "failing"
"""The reason to disable an endpoint that had no success for days."""

_SECRET_BYTES = 32
_TABLE = WEBHOOK_ENDPOINT.c
_JSON_FIELDS = ("filter_types", "channels", "metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEndpoint:
    """A row of ``WEBHOOK_ENDPOINT``. ``metadata`` is the column ``own_data``."""

    endpoint_id: str
    url: str
    description: str | None = None
    filter_types: list[str] | None = None
    channels: list[str] | None = None
    disabled: bool = False
    disabled_reason: str = ""
    rate_limit: int | None = None
    uid: str | None = None
    metadata: dict[str, Any] | None = None
    secret_sealed: str = field(repr=False)
    created_at: int
    updated_at: int

    @property
    def position(self) -> tuple[int, str]:
        """Its place in the list of endpoints: the time of creation, and the id."""
        return (self.created_at, self.endpoint_id)

    def accepts(self, event_type: str, channels: Collection[str]) -> bool:
        """Whether the filters accept an event of this type on these channels."""
        if self.disabled or (self.filter_types is not None and event_type not in self.filter_types):
            return False
        return self.channels is None or not set(self.channels).isdisjoint(channels)

    def to_wire(self) -> dict[str, object]:
        wire: dict[str, object] = {
            "id": self.endpoint_id,
            "url": self.url,
            "description": self.description,
            "filterTypes": self.filter_types,
            "channels": self.channels,
            "disabled": self.disabled,
            "rateLimit": self.rate_limit,
            "uid": self.uid,
            "metadata": self.metadata,
            "createdAt": utc_text(from_epoch_ms(self.created_at)),
            "updatedAt": utc_text(from_epoch_ms(self.updated_at)),
        }
        if self.disabled_reason:
            wire["disabledReason"] = self.disabled_reason
        return wire


def load_endpoint(connection: Connection, api_key_id: str, endpoint_id: str) -> StoredEndpoint | None:
    """The endpoint. None if it does not exist."""
    query = select(WEBHOOK_ENDPOINT).where(_TABLE.api_key_id == api_key_id, _TABLE.endpoint_id == endpoint_id)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _from_row(row)


def load_endpoints(connection: Connection, api_key_id: str) -> list[StoredEndpoint]:
    """All endpoints of an API key, oldest first."""
    query = select(WEBHOOK_ENDPOINT).where(_TABLE.api_key_id == api_key_id)
    endpoints = [_from_row(row) for row in connection.execute(query).mappings()]
    # Not by the database, whose collation may differ from the comparison of positions.
    return sorted(endpoints, key=lambda endpoint: endpoint.position)


def save_endpoint(connection: Connection, api_key_id: str, endpoint: StoredEndpoint) -> None:
    """Inserts or updates an endpoint."""
    values = asdict(endpoint)
    for name in _JSON_FIELDS:
        values[name] = None if values[name] is None else json_columns.dump(values[name])
    values["own_data"] = values.pop("metadata")
    statement = upsert(connection, WEBHOOK_ENDPOINT).values(api_key_id=api_key_id, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=[*WEBHOOK_ENDPOINT.primary_key], set_=values))


def delete_endpoint(connection: Connection, api_key_id: str, endpoint_id: str) -> None:
    connection.execute(
        delete(WEBHOOK_ENDPOINT).where(_TABLE.api_key_id == api_key_id, _TABLE.endpoint_id == endpoint_id)
    )


def new_sealed_secret(vault: Vault, api_key_id: str, endpoint_id: str, entropy: random.Random) -> str:
    """A new signing secret in the form of Standard Webhooks, encrypted. ``entropy`` must not be predictable."""
    secret = "whsec_" + base64.b64encode(entropy.randbytes(_SECRET_BYTES)).decode()
    return vault.stored.close(secret, _context(api_key_id, endpoint_id))


def open_secret(vault: Vault, api_key_id: str, endpoint: StoredEndpoint) -> str:
    """The signing secret of an endpoint."""
    return vault.stored.open(endpoint.secret_sealed, _context(api_key_id, endpoint.endpoint_id))


def _from_row(row: RowMapping) -> StoredEndpoint:
    values = {name: value for name, value in row.items() if name != "api_key_id"}
    values["metadata"] = values.pop("own_data")
    for name in _JSON_FIELDS:
        values[name] = None if values[name] is None else orjson.loads(values[name])
    return StoredEndpoint(**values)


def _context(api_key_id: str, endpoint_id: str) -> str:
    return f"webhook_endpoint {api_key_id} {endpoint_id}"
