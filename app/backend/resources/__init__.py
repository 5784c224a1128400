"""Organizations, folders, documents, users and groups: handlers, storage and tables."""
