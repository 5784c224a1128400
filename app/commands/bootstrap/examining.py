"""The doctor as a process of its own: what it reads of sources is nothing for a process that answers requests."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from threading import Event, Timer

from app.monitoring.counters import VARIABLE
from app.service.console.examinations import GIVEN_UP, LONGEST, ExaminationError, ExaminationFinding, Examine

_NICE = 10
_SIDES = 4
"""Fields of a finding, as ``usher doctor`` prints it where nobody looks."""


def examiner(arguments: Sequence[str]) -> Examine:
    """Runs ``usher doctor`` with these arguments, and tells its findings as they come."""
    # -P: an app/ in the working directory is somebody else's.
    command = [sys.executable, "-P", "-m", "app", "doctor", *arguments]
    return lambda: _findings(command)


def _findings(command: Sequence[str]) -> Iterator[ExaminationFinding]:
    # What it counts is nobody's business; everything else is as it is here.
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    process = subprocess.Popen(  # noqa: S603 - our own command
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)
    late = Event()

    def give_up() -> None:
        late.set()
        process.kill()

    timer = Timer(LONGEST.total_seconds(), give_up)
    timer.daemon = True
    timer.start()
    try:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        for line in process.stdout:
            state, name, *rest = line.rstrip("\n").split("\t", _SIDES - 1)
            says, advice = (*rest, "", "")[:2]
            yield ExaminationFinding(name, state, says, advice)
        code = process.wait()
    except ValueError as error:
        raise ExaminationError("the doctor said something that is no finding") from error
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    if late.is_set():
        raise ExaminationError(GIVEN_UP)
    if code not in {0, 1}:
        raise ExaminationError(f"the doctor ended with exit code {code}; usher doctor in a terminal tells why")
