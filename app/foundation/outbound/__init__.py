"""The way of calls out of this machine: by which route, trusting whom, and what went wrong."""
