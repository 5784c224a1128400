"""Outgoing HTTP calls: sessions, routes and failures."""
