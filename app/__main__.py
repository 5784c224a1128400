"""The command ``usher`` as ``python -m app``."""

from app.cli import main

main()
