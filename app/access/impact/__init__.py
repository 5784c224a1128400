"""The access impact: whose access to what differs between the database and a candidate."""
