"""The way of a plan into the backend, and of what the backend holds back into the ledger."""
