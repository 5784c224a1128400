"""Applications push changes of the directory, or all records of a source, over HTTP."""
