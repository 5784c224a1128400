"""``METADATA``: all tables of the backend's database. Importing the modules below declares their tables."""

import app.backend.collaboration.tables
import app.backend.editor.tables
import app.backend.judgments.tables
import app.backend.resources.tables
import app.backend.security.tables
import app.backend.storage.base
import app.backend.webhooks.tables

METADATA = app.backend.storage.base.METADATA
