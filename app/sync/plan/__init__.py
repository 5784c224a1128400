"""The plan of a run: what should be there, what differs from the ledger, and what of it may not be done."""
