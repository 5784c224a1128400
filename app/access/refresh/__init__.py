"""The refresh of the access model from what the directory's sources say."""
