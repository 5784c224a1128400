"""Notifications, metrics, and the activity of nodes."""
