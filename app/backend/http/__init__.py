"""A call's way from the route to its handler and back."""
