"""What a backend holds of ours: the ledger, the outcomes of calls, their journal, failures, and what a verify saw."""
