"""The mapping: rules that make records of a directory's objects."""
