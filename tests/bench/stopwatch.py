"""Measures time, CPU time and memory."""

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence


class Stopwatch:
    """Starts when it is created."""

    def __init__(self) -> None:
        gc.collect()
        self._began = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Wall time and CPU time of this process, in seconds."""
        return time.perf_counter() - self._began[0], time.process_time() - self._began[1]


def ratio(one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The ratio of the medians of two measurements: by wall time, and by CPU time."""
    return (
        statistics.median(a[0] / b[0] for a, b in zip(one, other, strict=True)),
        statistics.median(a[1] / b[1] for a, b in zip(one, other, strict=True)),
    )


_PEAK = """
# The resource limits' ru_maxrss would be the parent's at least.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak_of(code: str) -> float:
    """The peak memory, in bytes, of a separate process that runs this code."""
    command = [sys.executable, "-c", code + _PEAK]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 1024.0
