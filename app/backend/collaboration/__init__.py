"""What users leave on documents: comment threads, reactions, recordings, notifications, activity records."""
