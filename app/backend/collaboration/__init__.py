"""Comment threads, reactions, recordings, notifications and activity records of documents."""
