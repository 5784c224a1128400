"""Secrets, credentials, and HTTP sessions for URLs of callers."""
