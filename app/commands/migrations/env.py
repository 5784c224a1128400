"""Alembic's environment for Usher's own database."""

from app.foundation.database.alembic_revisions import run_environment

run_environment()
