"""The whole of Usher on one machine, from nothing: what ``usher demo`` shows."""
