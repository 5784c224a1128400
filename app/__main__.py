"""``python -m app`` is the command ``usher``."""

from app.cli import main

main()
