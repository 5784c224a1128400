"""Plans: the desired state, its differences from the ledger, and the limits of deletes."""
