"""Databases, settings files, outgoing connections, the audit log, logs and processes."""
