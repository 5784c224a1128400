"""Counts the modules of `app` that run for one permission call, and for one new user from a file to the backend.

    python -m tests.modules_on_path [--list]

The parts are built before, and the modules of the self-hosted backend are left out: what counts is what a reader must
open to follow a call or a record.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import app
from app.access.index.index import AccessIndex
from app.commands.bootstrap.service import service_app
from app.settings import Settings
from app.sync.runs.run import RunRequest
from tests.worlds.files import file_source
from tests.worlds.syncing import SyncedWorld, Wire
from tests.wsgi import WsgiAdapter

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

APP = Path(app.__file__).parent
ENTRY = (
    '{"kind": "organization", "organizationId": "acme", "organizationName": "Acme"}\n'
    '{"kind": "document", "organizationId": "acme", "documentId": "plan", "documentName": "Plan"}\n'
)
USER = (
    '{"kind": "user", "userId": "ada", "name": "Ada", "email": "ada@acme.example"}\n'
    '{"kind": "membership", "organizationId": "acme", "userId": "ada", "accessRole": "editor"}\n'
    '{"kind": "grant", "organizationId": "acme", "documentId": "plan", "userId": "ada"}\n'
)


@contextmanager
def modules_run(found: set[str]) -> Iterator[None]:
    """Adds to ``found`` each module of `app` in which a function is called, in any thread."""

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and frame.f_code.co_name != "<module>" and name.startswith(f"{APP}{os.sep}"):
            found.add(name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def names_of(files: set[str]) -> list[str]:
    """The modules as paths below `app`, without those that only build parts."""
    paths = (str(Path(file).relative_to(APP)) for file in files)
    return sorted(path for path in paths if not path.startswith(("backend/", "commands/")))


def unprofiled(wire: Wire) -> "WSGIApplication":
    """The backend behind the wire, whose own calls are not counted."""

    def app(environ: "WSGIEnvironment", start_response: "StartResponse") -> "Iterable[bytes]":
        profiler = sys.getprofile()
        sys.setprofile(None)
        try:
            return wire(environ, start_response)
        finally:
            sys.setprofile(profiler)

    return app


def count(folder: Path) -> dict[str, list[str]]:
    """Both paths, each measured once after a first, unmeasured pass."""
    world = SyncedWorld(f"sqlite:///{folder / 'usher.db'}", folder)
    world.transport = WsgiAdapter(unprofiled(world.wire))
    world.sources = [file_source(folder / "directory.jsonl")]
    engine = world.sync_engine()
    record: set[str] = set()
    for found, text in ((set[str](), ENTRY), (record, ENTRY + USER)):
        (folder / "directory.jsonl").write_text(text)
        world.time.move_on(seconds=1)
        with modules_run(found):
            run, _ = world.runs.enqueue(RunRequest(trigger="command"))
            assert world.execute(run.run_id, engine).status == "done"

    settings = Settings.model_validate({"provider": {"auth_tokens": ["secret-provider-token"]}})
    index = AccessIndex(world.engine, folder / "index", clock=world.time)
    index.update()
    app = service_app(settings, world.engine, clock=world.time, new_id=lambda: "request", index=index)
    client = app.test_client()
    body = {
        "data": {
            "requests": [{"userId": "ada", "resource": {"type": "document", "id": "plan", "organizationId": "acme"}}]
        }
    }
    call: set[str] = set()
    for found in (set[str](), call):
        with modules_run(found):
            answer = client.post(
                "/permissions/check", json=body, headers={"authorization": "Bearer secret-provider-token"}
            )
        assert answer.get_json()["data"][0]["hasAccess"], answer.text
    world.close()
    return {"one permission call": names_of(call), "one user record from file to backend": names_of(record)}


def main() -> None:
    """Prints the counts, and with ``--list`` the modules."""
    with tempfile.TemporaryDirectory() as folder:
        for path, modules in count(Path(folder)).items():
            print(f"{path}: {len(modules)} modules")
            if "--list" in sys.argv:
                print(*(f"  {module}" for module in modules), sep="\n")


if __name__ == "__main__":
    main()
