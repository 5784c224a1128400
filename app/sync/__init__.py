"""Synchronization: runs, plans, their execution, and the ledger of what the backend holds."""
