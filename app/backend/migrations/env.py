"""Alembic's environment for the tables of app/backend."""

from app.foundation.database.alembic_revisions import run_environment

run_environment()
