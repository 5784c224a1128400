"""The view of the access model that decisions read, in a fixed number of statements."""
