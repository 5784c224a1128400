"""Documents on their way to another id, with all that hangs on them."""
