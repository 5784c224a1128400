"""Workspaces: their owners, API keys, domains and email configuration."""
