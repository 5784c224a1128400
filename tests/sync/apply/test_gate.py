"""The gate: what ends a run."""

from threading import Event, Lock
from types import TracebackType

from app.sync.apply.gate import Gate


class LockReleasedBefore:
    """A lock that calls another thread's method as soon as it is released, once."""

    def __init__(self) -> None:
        self.then = lambda: None
        self._lock = Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        then, self.then = self.then, lambda: None
        then()


def test_third_unanswered_call_in_a_row_ends_the_run() -> None:
    gate = Gate(holds_lock=lambda: True, stop=Event())
    for unanswered in (True, True, False, True, True):
        if unanswered:
            gate.unanswered("timeout")
        else:
            gate.answered()
    assert gate.is_open()
    gate.unanswered("timeout")
    assert gate.ending is not None
    assert gate.ending.message == "the backend does not answer: 3 calls in a row were given up; timeout"


def test_an_answer_to_another_thread_does_not_change_the_number_of_calls_that_ended_the_run() -> None:
    gate = Gate(holds_lock=lambda: True, stop=Event())
    gate.unanswered("timeout")
    gate.unanswered("timeout")
    lock = LockReleasedBefore()
    lock.then = gate.answered
    gate._lock = lock  # type: ignore[assignment]
    gate.unanswered("timeout")
    assert gate.ending is not None
    assert gate.ending.message == "the backend does not answer: 3 calls in a row were given up; timeout"
