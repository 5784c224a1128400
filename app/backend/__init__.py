"""The self-hosted backend: a server for the operations of the contract, with its own database."""
