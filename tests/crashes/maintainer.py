"""Processes of a node that maintain the access index, or ask it, until they are killed.

They import no more than that.
"""

import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import lmdb
from sqlalchemy.exc import SQLAlchemyError

from app.access.index import index, waiting
from app.access.index.confirmations import Confirmations
from app.access.index.crashes import record_crashes
from app.access.index.file import IndexDamagedError, IndexFile, IndexWriter, create_file
from app.foundation.database.engine import open_engine
from app.foundation.files import replace_file
from tests.worlds.numbered_revisions import QUESTIONS, ask

STEPS = {
    "update": [index.AccessIndex._catch_up, index.AccessIndex._bring_up_to, IndexFile.writing, IndexWriter.store],
    "build": [index.AccessIndex._build, create_file, IndexFile.__init__, IndexFile.fill, index.AccessIndex._adopt],
}
"""The functions whose lines are the steps of an update and of a build. Both end with the confirmation."""
_LAST_STEPS = [Confirmations.confirm, replace_file]
CHECK = 0.001


def _node(url: str, folder: str) -> index.AccessIndex:
    index.SUSPECT = 0.1
    waiting.CHECK = waiting.PAUSE = waiting.MAX_PAUSE = CHECK
    return index.AccessIndex(open_engine(url), Path(folder), clock=partial(datetime.now, UTC))


def maintain(url: str, folder: str, max_logged: int) -> None:
    """Follows the changes of the database at short intervals; more changes than ``max_logged`` lead to a build."""
    vars(index)["MAX_LOGGED"] = max_logged
    _node(url, folder).run(threading.Event())


def die(url: str, folder: str, max_logged: int, *, step: str = "", times: int = 0, size: int = 0) -> None:
    """Brings the index up to date once, and is killed before it executes the line ``step`` the nth time, or before a
    file has more than ``size`` bytes.

    Without a step, prints each line that it executes.
    """
    if size:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    vars(index)["MAX_LOGGED"] = max_logged
    kind = "update" if max_logged else "build"
    code = {getattr(each, "__wrapped__", each).__code__ for each in (*STEPS[kind], *_LAST_STEPS)}
    seen: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code not in code:
            return None
        if event == "line":
            name = f"{frame.f_code.co_name}:{frame.f_lineno}"
            seen[name] += 1
            if not step:
                print(name)
            elif (name, seen[name]) == (step, times):
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    node = _node(url, folder)
    sys.settrace(trace)
    node.update()
    sys.settrace(None)


def question(url: str, folder: str, maintains: bool = False, check: float = CHECK) -> None:
    """Asks all the time, and prints the revision and the result of each call. ``maintains``: it also maintains the
    index if no other process does, as a service. ``check``: seconds between two checks of the file."""
    record_crashes(Path(folder))
    node = _node(url, folder)
    waiting.CHECK = waiting.PAUSE = waiting.MAX_PAUSE = check
    if not maintains:
        vars(node)["_maintains"] = lambda: False
    threading.Thread(target=node.run, args=(threading.Event(),), daemon=True).start()
    while True:
        try:
            with node.view(QUESTIONS) as view:
                print("answer", *ask(view), type(view).__name__, flush=True)
        except (IndexDamagedError, SQLAlchemyError) as error:
            print(503, type(error).__name__, flush=True)
        except lmdb.Error as error:
            print(500, type(error).__name__, flush=True)
        time.sleep(CHECK)


def abort(folder: str) -> None:
    """Crashes outside of the index."""
    record_crashes(Path(folder))
    os.abort()


def hold(path: str, transactions: int) -> None:
    """Begins this number of read transactions of a file, or all that its table of readers has room for, and waits."""
    environment = IndexFile(Path(path))._environment
    held: list[lmdb.Transaction] = []
    with suppress(lmdb.ReadersFullError):
        while len(held) < transactions:
            held.append(environment.begin())
    print(len(held), flush=True)
    threading.Event().wait()
