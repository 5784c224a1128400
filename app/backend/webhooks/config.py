"""The configuration of an API key's webhooks, and what becomes of a change."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from app.backend.security.vault import Vault
from app.backend.storage import json_sets
from app.backend.webhooks.payload import Wrapping
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
"""What is seeded when basic webhooks are first enabled (the reference's Events)."""

RAW, PROCESSED = "raw", "processed"
"""The targets of basic webhooks. Endpoint ids look different."""

_UNSET: dict[str, object] = {
    "rawNotificationUrl": "",
    "processedNotificationUrl": "",
    "encodeData": False,
    "encryptData": False,
    "publicKey": "",
    "enableDataProtection": False,
}


@dataclass(frozen=True, slots=True)
class BasicConfig:
    """Basic webhooks of an API key. ``stored`` is by wire name and lacks what was never set."""

    in_use: bool = False
    stored: dict[str, Any] = field(default_factory=dict)
    auth_token: str = field(default="", repr=False)

    @property
    def triggers(self) -> dict[str, bool]:
        """Event type to on or off."""
        found: dict[str, bool] = self.stored.get("triggers", {})
        return found

    def url(self, target: str) -> str:
        """Where the raw or the processed notifications go; empty for nowhere."""
        return str(self.stored.get("rawNotificationUrl" if target == RAW else "processedNotificationUrl", ""))

    def targets(self, event_type: str) -> list[str]:
        """Which of the two an event goes to."""
        if not self.in_use or not self.triggers.get(event_type, False):
            return []
        return [target for target in (RAW, PROCESSED) if self.url(target)]

    @property
    def wrapping(self) -> Wrapping:
        shown = _UNSET | self.stored
        return Wrapping(
            bool(shown["encodeData"]),
            bool(shown["encryptData"]),
            str(shown["publicKey"]),
            bool(shown["enableDataProtection"]),
        )

    def merged(self, *, in_use: bool | None, given: dict[str, Any]) -> "BasicConfig":
        """This, with what was given on top: field by field, and trigger by trigger. Enabled without triggers, it gets
        the default ones below those that were given.
        """
        changes = dict(given)
        token = changes.pop("authToken", self.auth_token)
        triggers = self.triggers | changes.pop("triggers", {})
        if in_use and not self.triggers:
            triggers = DEFAULT_TRIGGERS | triggers
        stored = self.stored | changes | ({"triggers": triggers} if triggers else {})
        return BasicConfig(self.in_use if in_use is None else in_use, stored, token)

    def to_wire(self) -> dict[str, object]:
        config = {"authToken": self.auth_token, **_UNSET, **self.stored, "triggers": self.triggers}
        return {"useWebhookService": self.in_use, "webhookServiceConfig": config}


@dataclass(frozen=True, slots=True)
class AdvancedConfig:
    """Advanced webhooks of an API key; the reference's defaults."""

    is_enabled: bool = False
    encrypt_data: bool = False
    encode_data: bool = False
    public_key: str = ""
    enable_data_protection: bool = False

    @property
    def wrapping(self) -> Wrapping:
        return Wrapping(self.encode_data, self.encrypt_data, self.public_key, self.enable_data_protection)

    def merged(self, given: dict[str, Any]) -> "AdvancedConfig":
        """This, with the given attributes on top."""
        return replace(self, **given)

    def to_wire(self) -> dict[str, object]:
        return {wire_name(name): value for name, value in asdict(self).items()}


def basic_config(connection: Connection, vault: Vault, api_key_id: str) -> BasicConfig:
    """What is stored; off and empty before it was ever set."""
    table = WEBHOOK_CONFIG.c
    row = connection.execute(
        select(table.in_use, table.config, table.token_sealed).where(table.api_key_id == api_key_id)
    ).one_or_none()
    if row is None:
        return BasicConfig()
    token = vault.stored.open(row.token_sealed, _context(api_key_id)) if row.token_sealed else ""
    return BasicConfig(row.in_use, json_sets.load_object(row.config), token)


def store_basic_config(connection: Connection, vault: Vault, api_key_id: str, config: BasicConfig, now: int) -> None:
    connection.execute(delete(WEBHOOK_CONFIG).where(WEBHOOK_CONFIG.c.api_key_id == api_key_id))
    connection.execute(
        insert(WEBHOOK_CONFIG).values(
            api_key_id=api_key_id,
            in_use=config.in_use,
            config=json_sets.dump(config.stored),
            token_sealed=vault.stored.close(config.auth_token, _context(api_key_id)) if config.auth_token else "",
            updated_at=now,
        )
    )


def advanced_config(connection: Connection, api_key_id: str) -> AdvancedConfig | None:
    """What is stored; None before it was ever set."""
    table = ADVANCED_WEBHOOK_CONFIG.c
    row = connection.execute(
        select(
            table.is_enabled, table.encrypt_data, table.encode_data, table.public_key, table.enable_data_protection
        ).where(table.api_key_id == api_key_id)
    ).one_or_none()
    return None if row is None else AdvancedConfig(*row)


def store_advanced_config(connection: Connection, api_key_id: str, config: AdvancedConfig, now: int) -> None:
    connection.execute(delete(ADVANCED_WEBHOOK_CONFIG).where(ADVANCED_WEBHOOK_CONFIG.c.api_key_id == api_key_id))
    connection.execute(insert(ADVANCED_WEBHOOK_CONFIG).values(api_key_id=api_key_id, updated_at=now, **asdict(config)))


def _context(api_key_id: str) -> str:
    return f"webhook_config {api_key_id}"
