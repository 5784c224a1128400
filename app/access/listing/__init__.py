"""Lists of access: what a user may open, and who may open a resource."""
