"""Runs the demo: starts the processes, syncs, asks the questions, and shows what to try."""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import SystemRandom
from threading import Event

import requests
from rich.console import Console
from rich.text import Text

from app.commands.bootstrap.outgoing import backend_client
from app.commands.demo.environment import DemoEnvironment, create_workspace, prepare, register_service, start, wait_for
from app.commands.demo.questions import CASES, AnsweredCase, ask_all
from app.commands.frame import CommandError
from app.commands.screen import print_note, show_table
from app.commands.sync import EXIT_INCOMPLETE
from app.foundation.audit import Actor, Audit, AuditAction
from app.foundation.clock import utc_now
from app.foundation.database.engine import disposing, open_engine, writing
from app.foundation.processes import ChildEndedError, Children, stop_signals
from app.foundation.text import printable
from app.service.console.credentials import token_digest
from app.service.console.sessions import Sessions


def run_demo(*, once: bool, port: int | None, data: Path | None) -> None:
    """Runs the demo. Without ``once``, everything keeps running until SIGINT or SIGTERM. Raises ``CommandError``."""
    console = Console(soft_wrap=not sys.stdout.isatty(), highlight=False)
    with _folder(data, keep=not once) as folder, stop_signals() as stop:
        demo = prepare(folder, port)
        children = Children()
        try:
            _show(demo, children, console, stop)
            if not once and not stop.is_set():
                _suggest(demo, console)
                children.watch(stop)
        except ChildEndedError as error:
            for line in error.child.last_lines():
                print_note(f"  {line}")
            raise CommandError(str(error)) from error
        except requests.RequestException as error:
            raise CommandError(f"the service does not answer: {type(error).__name__}") from error
        finally:
            children.end(quickly=True)
            if not once:
                end = f"\nEverything has stopped. The data is still in {demo.folder}: --data continues with it."
                console.print(Text(end), soft_wrap=True)


@contextmanager
def _folder(data: Path | None, *, keep: bool) -> Iterator[Path]:
    if data is not None:
        yield data
        return
    folder = Path(tempfile.mkdtemp(prefix="usher-demo-"))
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _show(demo: DemoEnvironment, children: Children, console: Console, stop: Event) -> None:
    def print_step(title: str, text: str) -> None:
        console.print(Text.assemble((f"  {title:<13}", "bold"), printable(text)))

    console.print(Text("Usher: everything on one machine\n", style="bold"))
    print_step("data", str(demo.folder))
    start("backend", demo, children)
    wait_for(demo.backend_url, children)
    print_step("backend", demo.backend_url)
    print_step("workspace", create_workspace(demo))
    start("service", demo, children)
    wait_for(demo.service_url, children)
    print_step("service", demo.service_url)
    print_step("permissions", f"the backend calls {register_service(demo)}")
    print_step("sync", f"usher sync --config {demo.settings_file}")
    sys.stdout.flush()
    _sync(demo, children, stop)
    if stop.is_set():
        return
    # Not before the sync: a worker syncs at once if nothing did.
    start("worker", demo, children)
    console.print()
    headers = {"Authorization": f"Bearer {demo.token_file.read_text('utf-8').strip()}"}
    with backend_client(demo.settings()) as client:
        answers = list(ask_all(CASES, client, f"{demo.service_url}/permissions/explain", headers))
    _show_answers(answers)
    allowed = sum(answer.allowed for answer in answers)
    console.print(
        f"{len(answers)} questions to the backend, which called the service: {allowed} allowed,"
        f" {len(answers) - allowed} denied."
    )


def _sync(demo: DemoEnvironment, children: Children, stop: Event) -> None:
    """Runs ``usher sync``, which shows its progress and its summary."""
    sync = start("sync", demo, children)
    try:
        children.watch(stop)
    except ChildEndedError as error:
        if error.child is not sync or sync.process.returncode not in {0, EXIT_INCOMPLETE}:
            raise
        children.forget(sync)


def _show_answers(answers: Sequence[AnsweredCase]) -> None:
    show_table(
        ("who", "what", "answer", "role", "until", "reason"),
        [
            (
                answer.case.user_id,
                f"{answer.case.type} {answer.case.resource_id}",
                "allowed" if answer.allowed else "denied",
                answer.role or "–",
                f"{answer.until:%Y-%m-%d}" if answer.until else "–",
                answer.reason,
            )
            for answer in answers
        ],
    )


def _suggest(demo: DemoEnvironment, console: Console) -> None:
    """Prints three lines: the console, the file to edit, and how to stop."""
    lines = (
        ("console", _console_link(demo)),
        ("edit", f"{demo.directory}, then choose Sync now in the console"),
        ("stop", f"Ctrl-C; the logs are {demo.folder}/*.log"),
    )
    console.print()
    for title, text in lines:
        console.print(Text.assemble((f"  {title:<13}", "bold"), text), soft_wrap=True)


def _console_link(demo: DemoEnvironment) -> str:
    """The console's address, with a link that signs in once if this is a terminal: logs must not contain it."""
    url = f"{demo.service_url}/console/"
    if not sys.stdout.isatty():
        return f"{url}, with the token in {demo.token_file}"
    return f"{url}sign-in#{_sign_in_token(demo)} signs in once, within five minutes; later use {demo.token_file}"


def _sign_in_token(demo: DemoEnvironment) -> str:
    settings = demo.settings()
    sessions = Sessions(
        utc_now,
        SystemRandom(),
        idle_timeout=timedelta(seconds=settings.console.idle_timeout),
        max_age=timedelta(seconds=settings.console.session_timeout),
    )
    with disposing(open_engine(settings.database_url)) as engine, writing(engine) as connection:
        actor = Actor(name="usher demo", way="command")
        Audit(utc_now).record(connection, actor, AuditAction.LINK)
        return sessions.create_link(connection, token_digest(settings.admin.tokens[0].get_secret_value()))
