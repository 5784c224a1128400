"""The self-hosted backend: the contract's operations for real, on a database of its own."""
