"""``usher demo``: all of Usher on one machine, with a sample company."""
