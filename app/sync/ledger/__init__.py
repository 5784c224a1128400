"""The ledger of a backend, the journal of calls, failures, and observed items."""
