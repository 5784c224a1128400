"""The decision on one permission request, and its explanation."""
