"""Judgments: records of review decisions, searched by meaning or by metadata."""
