"""Directory sources, which provide the records of the access model."""
