"""Webhooks: events sent to the servers of customers."""
