"""The access model page by page, for people who look through it."""
