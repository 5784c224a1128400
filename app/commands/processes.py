"""Finds the long-running Usher processes on this machine."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from os import geteuid, getpid
from pathlib import Path

from app.commands.frame import CommandError


class LongRunning(Enum):
    """A command that runs until it is stopped. The value is its words."""

    SERVE = ("serve",)
    WORKER = ("worker",)
    BACKEND_SERVE = ("backend", "serve")
    BACKEND_DELIVER = ("backend", "deliver")


@dataclass(frozen=True, slots=True)
class UsherProcess:
    """A running process of Usher."""

    pid: int
    command: LongRunning
    arguments: tuple[str, ...]
    folder: Path
    """Its working directory."""

    @property
    def config(self) -> Path | None:
        """The settings file from its command line."""
        path = self.option("--config")
        return self.folder / path if path else None

    def option(self, name: str) -> str:
        """The value of ``name VALUE`` or ``name=VALUE`` on its command line. Empty if there is none."""
        for index, argument in enumerate(self.arguments):
            option, equals, value = argument.partition("=")
            if option == name:
                return value if equals else "".join(self.arguments[index + 1 : index + 2])
        return ""

    def __str__(self) -> str:
        return f"usher {' '.join(self.command.value)} (process {self.pid})"


def find_processes(proc: Path) -> Iterator[UsherProcess]:
    """The Usher processes of this user in ``/proc``. Root sees those of all users. Raises ``CommandError``."""
    try:
        pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal())
    except OSError as error:
        raise CommandError(f"{proc}: {error.strerror}; processes are listed on Linux only") from error
    for pid in pids:
        entry = proc / str(pid)
        try:
            arguments = tuple((entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0"))
            if geteuid() not in {0, entry.stat().st_uid}:
                continue
        except OSError:
            continue  # the process has ended
        command = command_of(arguments)
        if command is not None and pid != getpid():
            yield UsherProcess(pid, command, arguments, entry / "cwd")


def command_of(arguments: Sequence[str]) -> LongRunning | None:
    """The long-running Usher command with these arguments. None for other commands and programs."""
    rest = iter(arguments)
    # The first loop ends at the program, so the second one continues with the arguments after it.
    for previous, argument in zip(("", *arguments), rest, strict=False):
        # Another program may have a module called app; Usher's runs on this interpreter.
        if Path(argument).name == "usher" or (previous, argument, arguments[0]) == ("-m", "app", sys.executable):
            break
    words = []
    for argument in rest:
        if argument == "--config":
            next(rest, None)
        elif argument and not argument.startswith("-"):
            words.append(argument)
    return next((command for command in LongRunning if command.value == tuple(words[: len(command.value)])), None)
