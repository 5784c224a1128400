"""Synchronization: runs, plans, applying, and the ledger."""
