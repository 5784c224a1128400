"""The access model in SQL: how a reading of the directory becomes the revision in force, and how it is read."""
