"""The permission provider apart from HTTP: its dependencies, and how it answers a call."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from app.foundation.clock import Clock
from app.http.body import ANONYMOUS_BYTES
from app.http.throttle import FailedCredentials
from app.service.provider.answer import (
    OriginsLoader,
    PermissionAnswer,
    ProviderObserver,
    ViewOpener,
    answer_questions,
    read_questions,
)
from app.service.provider.decision_log import DecisionLog
from app.service.provider.settings import MAX_BODY_BYTES, ProviderSettings
from app.service.provider.signing import Sign


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderParts:
    """The dependencies of the provider. The route and the fast path answer calls by the same methods."""

    settings: ProviderSettings
    open_view: ViewOpener
    """Opens the view for decisions."""
    open_view_with_names: ViewOpener
    """Opens a view that also contains the names for reasons."""
    load_origins: OriginsLoader
    require_admin: Callable[[], None]
    """Authenticates an operator, or raises."""
    clock: Clock
    instance: Callable[[], str]
    """Returns the identifier of the state of the access model (``app.access.revisions.instance_stamp``)."""
    observers: tuple[ProviderObserver, ...]
    failures: FailedCredentials
    """Throttles wrong tokens."""
    sign: Sign | None = None
    """Signs answers to browsers. None if they are not signed."""
    log: DecisionLog | None = None

    @property
    def max_call_bytes(self) -> int:
        """The maximum size of the body of a permission call."""
        return ANONYMOUS_BYTES if self.settings.allow_anonymous else MAX_BODY_BYTES

    def answer(self, body: object, min_revision: int = 0) -> PermissionAnswer:
        """Decides the questions of a call now. Raises what ``read_questions`` and ``answer_questions`` raise."""
        questions = read_questions(body, self.settings.max_requests)
        return answer_questions(
            questions,
            self.open_view,
            self.clock(),
            self.settings.policy,
            min_revision=min_revision,
            pick=None if self.log is None else self.log.picks,
        )

    def count(self, answer: PermissionAnswer, began: float) -> float:
        """Counts an answered call that began at this ``perf_counter``. Returns its seconds."""
        seconds = perf_counter() - began
        for observer in self.observers:
            observer.answered(answer.allowed, answer.denied, answer.errors, seconds)
        return seconds

    def write_log(self, answer: PermissionAnswer, request_id: str | None) -> None:
        """Writes the picked decisions to the decision log. Call it after the response."""
        if self.log is not None:
            self.log.write(answer.picked, answer.decided_at, answer.revision, request_id)
