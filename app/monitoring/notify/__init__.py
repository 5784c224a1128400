"""Telling people: what needs their attention, who has been told of it, and how it gets to them."""
