"""Alembic's environment for the tables of app/store."""

from app.commands.schema import METADATA
from app.foundation.database.alembic_revisions import run_environment

run_environment(METADATA)
