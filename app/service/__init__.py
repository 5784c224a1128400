"""What answers over HTTP: permission calls, the operators' API, pushes and the console."""
