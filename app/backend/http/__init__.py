"""Routes, authentication and dispatch of the operations."""
