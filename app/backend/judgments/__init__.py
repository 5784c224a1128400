"""Judgments, records of review decisions: how they come in, and how they are found by meaning or by metadata."""
