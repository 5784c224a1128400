"""Secrets, credentials, and where this server may call out to."""
