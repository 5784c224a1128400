"""Alembic's environment for the tables of app/store."""

from app.database.migrations import run_environment
from app.store.schema import METADATA

run_environment(METADATA)
