"""Organizations, folders, documents, users and groups: handler, storage and table of a noun side by side."""
