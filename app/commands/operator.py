"""Whoever runs a command, as runs and the audit log know them."""

import getpass
import os

from app.audit import Actor


def operator() -> Actor:
    """The user of the operating system; whoever can read the settings may do everything."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        # In a container a number may be all that there is.
        name = f"user {os.getuid()}"
    return Actor(name=f"{name} (command line)", role="admin", way="command")
