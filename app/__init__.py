"""Usher: keeps a collaboration backend in step with a company's directory, and answers its permission questions."""

__version__ = "1.0.0"
