"""Applies plans to the backend, and reads the backend back."""
