"""Alembic's environment for the tables of app/store."""

from app.database.alembic_revisions import run_environment
from app.store.schema import METADATA

run_environment(METADATA)
