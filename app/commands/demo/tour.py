"""The tour through a demonstration, step by step."""

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import requests
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from app.commands.demo.cases import CASES
from app.commands.demo.environment import (
    DemoEnvironment,
    furnish,
    introduce,
    move_in,
    start_backend,
    start_service,
    start_worker,
    wait_for,
)
from app.commands.screen import show_table
from app.foundation.outbound.session import bare_session
from app.foundation.processes import ChildEndedError, Children, stop_signals
from app.foundation.text import printable

if TYPE_CHECKING:
    from app.commands.demo.questions import AnsweredCase

SYNC_WITHIN = 120.0


class DemoError(Exception):
    """The demonstration cannot go on; the text is one line, ``log`` the last lines of the process at fault."""

    def __init__(self, message: str, log: list[str] | None = None) -> None:
        super().__init__(message)
        self.log = log or []


def run_demo(*, once: bool, port: int | None, data: Path | None) -> None:
    """All of it; without ``once`` everything keeps serving until SIGINT or SIGTERM. Raises ``DemoError``."""
    console = Console(soft_wrap=not sys.stdout.isatty(), highlight=False)
    with _folder(data, keep=not once) as folder, stop_signals() as stop:
        demo = furnish(folder, port)
        children = Children()
        try:
            _show_around(demo, children, console, stop)
            if not once and not stop.is_set():
                _invite(demo, console)
                children.watch(stop)
        except ChildEndedError as error:
            raise DemoError(str(error), error.child.last_lines()) from error
        except requests.RequestException as error:
            raise DemoError(f"the service does not answer: {type(error).__name__}") from error
        finally:
            children.end(quickly=True)
            if not once:
                where = f"\nEverything has stopped. The data is still in {demo.folder}: --data goes on from it."
                console.print(Text(where), soft_wrap=True)


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


def _show_around(demo: DemoEnvironment, children: Children, console: Console, stop: Event) -> None:
    def say(what: str, text: str) -> None:
        console.print(Text.assemble((f"  {what:<13}", "bold"), printable(text)))

    console.print(Text("Usher: everything on one machine\n", style="bold"))
    say("data", str(demo.folder))
    start_backend(demo, children)
    wait_for(demo.backend_url, children)
    say("backend", demo.backend_url)
    say("workspace", move_in(demo))
    start_service(demo, children)
    wait_for(demo.service_url, children)
    say("service", demo.service_url)
    say("permissions", f"the backend asks {introduce(demo)}")
    run = _sync(demo, children, stop)
    if stop.is_set():
        return
    say("sync", _outcome(run))
    console.print()
    answers = _ask(demo)
    _show_answers(answers)
    allowed = sum(answer.allowed for answer in answers)
    console.print(
        f"{len(answers)} questions to the backend, which asked the service: {allowed} allowed,"
        f" {len(answers) - allowed} denied."
    )


def _session(demo: DemoEnvironment) -> requests.Session:
    session = bare_session()
    session.headers["Authorization"] = f"Bearer {demo.token_file.read_text('utf-8').strip()}"
    return session


def _sync(demo: DemoEnvironment, children: Children, stop: Event) -> dict[str, Any]:
    """One run, as any program would ask for it: ``POST /resync``, then looking how far it is."""
    columns: tuple[Any, ...] = (
        TextColumn("  [bold]sync[/bold]         {task.description:<10}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with _session(demo) as session, Progress(*columns, transient=True, disable=not sys.stdout.isatty()) as bars:
        answer = session.post(f"{demo.service_url}/resync", json={}, timeout=30)
        answer.raise_for_status()
        where = demo.service_url + answer.headers["Location"]
        # Only now: a worker that finds a directory that was never read asks for a run itself, and that is this one.
        start_worker(demo, children)
        bar = bars.add_task("queued", total=None)
        end = time.monotonic() + SYNC_WITHIN
        while time.monotonic() < end:
            run: dict[str, Any] = session.get(where, timeout=30).json()
            total, settled = _numbers(run)
            bars.update(bar, description=run["status"], total=total or None, completed=settled)
            if run["status"] in {"done", "partial", "held", "failed", "cancelled"}:
                if run["status"] == "failed":
                    raise DemoError(f"the sync failed: {printable(str(run['error']))}")
                return run
            children.check()
            if stop.wait(0.1):
                return run
    raise DemoError(f"the sync did not end within {SYNC_WITHIN:.0f} seconds")


def _numbers(run: dict[str, Any]) -> tuple[int, int]:
    """How many items a run has, and how many of them are settled."""
    outcomes = [outcomes for actions in run["counts"].values() for outcomes in actions.values()]
    total = sum(sum(numbers.values()) for numbers in outcomes)
    return total, total - sum(numbers.get("planned", 0) for numbers in outcomes)


def _outcome(run: dict[str, Any]) -> str:
    kinds = [
        f"{sum(numbers.get('done', 0) for numbers in actions.values())} {kind}"
        for kind, actions in run["counts"].items()
    ]
    return f"{run['status']} with {run['calls']} calls: {', '.join(kinds) or 'nothing to do'}"


def _ask(demo: DemoEnvironment) -> "list[AnsweredCase]":
    from app.commands.bootstrap.outside import backend_client
    from app.commands.demo.questions import ask_all

    settings = demo.settings()
    headers = {"Authorization": f"Bearer {demo.token_file.read_text('utf-8').strip()}"}
    with backend_client(settings) as client:
        return list(ask_all(CASES, client, f"{demo.service_url}/permissions/explain", headers))


def _show_answers(answers: "list[AnsweredCase]") -> None:
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


def _command() -> str:
    """How the command was called, so that a line can be copied."""
    called = Path(sys.argv[0])
    return sys.argv[0] if called.name == "usher" and called.is_file() else "usher"


def _invite(demo: DemoEnvironment, console: Console) -> None:
    """What to try while everything keeps serving."""
    lines = (
        f"${{EDITOR:-nano}} {demo.directory}",
        f'curl -X POST -H "Authorization: Bearer $(cat {demo.token_file})" {demo.service_url}/resync',
        f"{_command()} check --config {demo.settings_file} USER document ID --organization ORG --explain",
    )
    console.print(
        "\nEverything keeps serving. Try it: change who may see what, bring the backend in step, ask again:\n"
    )
    for line in lines:
        console.print(Text(f"  {line}"), soft_wrap=True)
    console.print(f"\nConsole {demo.service_url}/console/, signed in with the token in {demo.token_file}")
    console.print(f"Health {demo.service_url}/readyz, numbers {demo.service_url}/metrics,")
    console.print(Text(f"logs {demo.folder}/*.log. Ctrl-C stops everything."), soft_wrap=True)
