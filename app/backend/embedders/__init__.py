"""Embedders: they turn texts into vectors that can be compared."""
