"""What applications tell the directory: changes, or everything, pushed over HTTP."""
