"""Notifications: what needs attention, which messages were sent about it, and the channels that deliver them."""
