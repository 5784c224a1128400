"""Usher's own database: the access model, the ledger of what the backend holds, plans and runs."""
