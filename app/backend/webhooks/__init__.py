"""Webhooks: what happens is told to the customers' own servers."""
