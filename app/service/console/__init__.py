"""The console: the pages on which operators see, decide and understand."""
