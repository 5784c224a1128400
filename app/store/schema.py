"""All tables of Usher's own database in one place: what migrations are made from."""

from app.store import (
    access_tables,
    audit_tables,
    console_tables,
    directory_tables,
    notification_tables,
    plan_tables,
    process_tables,
    push_tables,
    sync_tables,
    worker_tables,
)
from app.store.base import METADATA

__all__ = [
    "METADATA",
    "access_tables",
    "audit_tables",
    "console_tables",
    "directory_tables",
    "notification_tables",
    "plan_tables",
    "process_tables",
    "push_tables",
    "sync_tables",
    "worker_tables",
]
