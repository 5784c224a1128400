"""Imports all tables of Usher's own database, so that its metadata is complete."""

import app.access.source_tables
import app.access.tables
import app.foundation.audit_tables
import app.monitoring.notify.tables
import app.monitoring.tables
import app.service.console.tables
import app.sync.ledger.tables
import app.sync.plan.tables
import app.sync.runs.tables  # noqa: F401 - tables register themselves
from app.foundation.database.tables import METADATA

__all__ = ["METADATA"]
