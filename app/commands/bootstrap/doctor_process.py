"""Runs ``usher doctor`` in a subprocess, so that its reads cannot slow down a process that answers requests."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from threading import Event, Timer

from app.monitoring.counters import VARIABLE
from app.service.console.examinations import TIMED_OUT, TIMEOUT, ExaminationError, ExaminationFinding, Examine

_NICE = 10


def examiner(arguments: Sequence[str]) -> Examine:
    """Returns a function that runs ``usher doctor`` with these arguments and yields its findings as they arrive."""
    # -P: do not import an app/ in the working directory.
    command = [sys.executable, "-P", "-m", "app", "doctor", *arguments]
    return lambda: _findings(command)


def _findings(command: Sequence[str]) -> Iterator[ExaminationFinding]:
    # The doctor must not add to the metrics of this process.
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

    timer = Timer(TIMEOUT.total_seconds(), give_up)
    timer.daemon = True
    timer.start()
    try:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        for line in process.stdout:
            state, name, *texts = line.rstrip("\n").split("\t", 3)
            message, advice = (*texts, "", "")[:2]
            yield ExaminationFinding(name, state, message, advice)
        code = process.wait()
    except ValueError as error:
        raise ExaminationError("the doctor printed a line that is not a finding") from error
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    if late.is_set():
        raise ExaminationError(TIMED_OUT)
    if code not in {0, 1}:
        raise ExaminationError(f"the doctor ended with exit code {code}; run usher doctor in a terminal to see why")
