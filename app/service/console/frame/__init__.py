"""The frame of pages: look, words, charts and assets, for the console and whatever else shows pages beside it."""
