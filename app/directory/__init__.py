"""Where access records come from: directory sources, each with a verdict on how well it could be read."""
