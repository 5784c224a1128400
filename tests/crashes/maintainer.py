"""A process that maintains the access index until it is killed. It imports no more than that."""

import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from app.access.index import index, waiting
from app.foundation.database.engine import open_engine


def maintain(url: str, folder: str, max_logged: int) -> None:
    """Follows the changes of the database at short intervals; more changes than ``max_logged`` lead to a build."""
    waiting.CHECK = 0.001
    vars(index)["MAX_LOGGED"] = max_logged
    index.AccessIndex(open_engine(url), Path(folder), clock=partial(datetime.now, UTC)).run(threading.Event())
