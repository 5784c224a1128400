"""Looking at an installation from all sides, and saying what to do about what is not well."""
