"""Settings in layers: loading them, explaining what is wrong with them, showing them."""
