"""The webhook configurations of an API key: loads, merges and stores them."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from app.backend.security.key_configs import load_config, store_config
from app.backend.security.vault import Vault
from app.backend.storage import json_columns
from app.backend.webhooks.payload import BodyOptions
from app.backend.webhooks.tables import ADVANCED_WEBHOOK_CONFIG, WEBHOOK_CONFIG
from app.contract.base import wire_name

DEFAULT_TRIGGERS = {
    "comment_annotation.add": True,
    "comment.add": True,
    "comment.update": True,
    "comment.delete": True,
    "comment_annotation.status_change": True,
    "comment_annotation.assign": True,
    "comment_annotation.priority_change": True,
    "comment_annotation.suggestion_accept": False,
    "comment_annotation.suggestion_reject": False,
    "comment.reaction_add": True,
    "comment.reaction_delete": True,
    "huddle.create": True,
    "huddle.join": True,
    "crdt.add": False,
    "crdt.update": False,
    "recorder.done": False,
    "recorder.delete": False,
}
"""The triggers of basic webhooks that are enabled without any (the reference's Events)."""

RAW, PROCESSED = "raw", "processed"
"""The targets of basic webhooks. Ids of endpoints have another form."""

_DEFAULTS: dict[str, object] = {
    "rawNotificationUrl": "",
    "processedNotificationUrl": "",
    "encodeData": False,
    "encryptData": False,
    "publicKey": "",
    "enableDataProtection": False,
}


@dataclass(frozen=True, slots=True)
class BasicConfig:
    """Basic webhooks of an API key. ``stored`` maps the wire names of the fields that were set to their values."""

    in_use: bool = False
    stored: dict[str, Any] = field(default_factory=dict)
    auth_token: str = field(default="", repr=False)

    @property
    def triggers(self) -> dict[str, bool]:
        """Event types that are on or off."""
        triggers: dict[str, bool] = self.stored.get("triggers", {})
        return triggers

    def url(self, target: str) -> str:
        """The URL of a target, or an empty string."""
        return str(self.stored.get("rawNotificationUrl" if target == RAW else "processedNotificationUrl", ""))

    @property
    def targets(self) -> list[str]:
        """The targets with a URL, if basic webhooks are in use."""
        return [target for target in (RAW, PROCESSED) if self.in_use and self.url(target)]

    @property
    def body_options(self) -> BodyOptions:
        values: dict[str, Any] = _DEFAULTS | self.stored
        return BodyOptions(**{option.name: values[wire_name(option.name)] for option in fields(BodyOptions)})

    def merged(self, *, in_use: bool | None, changes: dict[str, Any]) -> "BasicConfig":
        """This configuration with changes by field and by trigger. Sets default triggers when first enabled."""
        changed = {name: value for name, value in changes.items() if name not in {"authToken", "triggers"}}
        triggers = self.triggers | changes.get("triggers", {})
        if in_use and not self.triggers:
            triggers = DEFAULT_TRIGGERS | triggers
        stored = self.stored | changed | ({"triggers": triggers} if triggers else {})
        return BasicConfig(self.in_use if in_use is None else in_use, stored, changes.get("authToken", self.auth_token))

    def to_wire(self) -> dict[str, object]:
        config = {"authToken": self.auth_token, **_DEFAULTS, **self.stored, "triggers": self.triggers}
        return {"useWebhookService": self.in_use, "webhookServiceConfig": config}


@dataclass(frozen=True, slots=True)
class AdvancedConfig(BodyOptions):
    """Advanced webhooks of an API key."""

    is_enabled: bool = False

    def to_wire(self) -> dict[str, object]:
        return {wire_name(name): value for name, value in asdict(self).items()}


def basic_config(connection: Connection, vault: Vault, api_key_id: str) -> BasicConfig:
    """The stored configuration, or the default one."""
    row, token = load_config(connection, vault, WEBHOOK_CONFIG, api_key_id)
    return BasicConfig() if row is None else BasicConfig(row.in_use, json_columns.load_object(row.config), token)


def store_basic_config(connection: Connection, vault: Vault, api_key_id: str, config: BasicConfig, now: int) -> None:
    columns = {"in_use": config.in_use, "config": json_columns.dump(config.stored), "updated_at": now}
    store_config(connection, vault, WEBHOOK_CONFIG, api_key_id, config.auth_token, **columns)


def advanced_config(connection: Connection, api_key_id: str) -> AdvancedConfig | None:
    """The stored configuration, or None."""
    table = ADVANCED_WEBHOOK_CONFIG.c
    columns = [table[option.name] for option in fields(AdvancedConfig)]
    row = connection.execute(select(*columns).where(table.api_key_id == api_key_id)).mappings().one_or_none()
    return None if row is None else AdvancedConfig(**row)


def store_advanced_config(connection: Connection, api_key_id: str, config: AdvancedConfig, now: int) -> None:
    connection.execute(delete(ADVANCED_WEBHOOK_CONFIG).where(ADVANCED_WEBHOOK_CONFIG.c.api_key_id == api_key_id))
    connection.execute(insert(ADVANCED_WEBHOOK_CONFIG).values(api_key_id=api_key_id, updated_at=now, **asdict(config)))
