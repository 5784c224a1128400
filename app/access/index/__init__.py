"""The index: the node's own copy of the access model, in a memory-mapped file. It answers permission calls."""
