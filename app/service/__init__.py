"""The HTTP service: permission calls, the operators' API, pushes and the console."""
