"""Alembic's environment for Usher's own database."""

from app.commands.schema import METADATA
from app.foundation.database.alembic_revisions import run_environment

run_environment(METADATA)
