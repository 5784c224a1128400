"""The access impact: compares the access of all users in the database with that in a candidate."""
