"""Tokens for clients, signatures, and the keys with which others check them."""
