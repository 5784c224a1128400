"""The errors of a call, and whether the call was applied.

    ClientError
    ├── BackendRefused            an error response: not applied, and a retry would be refused as well
    │   ├── InvalidRequest        INVALID_ARGUMENT
    │   ├── ItemsFailed           ``items`` has the result of each, though the operation promises none
    │   └── CredentialsRefused    401 or 403, or no credentials configured: other calls would fail as well
    ├── OperationMissing          404, 405 or 501: this backend does not have the operation, or its object
    ├── RateLimited               still throttled after the longest wait: not applied
    ├── OutcomeUnknown            no readable response in any try: applied or not
    └── NotReached                no connection in any try: not applied

An error covers all tries of its call. If any try had an unknown outcome and no later one was answered, it is
``OutcomeUnknown``. If a later try was refused, it is that refusal with ``maybe_applied_earlier``. The errors of the
HTTP library are kept as causes. No text contains a credential.
"""

from collections.abc import Mapping

from app.contract.base import ItemResult
from app.contract.errors import Status
from app.foundation.outbound.failure import CallFailure


class ClientError(Exception):
    """A call that did not succeed. ``operation`` is its name in the contract, ``message`` one line for people.

    ``maybe_applied_earlier``: an earlier try had an unknown outcome, so the call may have been applied. ``failure`` is
    set if the last try had no response.
    """

    def __init__(self, operation: str, message: str) -> None:
        super().__init__(f"{operation}: {message}")
        self.operation = operation
        self.message = message
        self.maybe_applied_earlier = False
        self.failure: CallFailure | None = None


class BackendRefused(ClientError):  # noqa: N818 - the class names of a tree of outcomes read best without a suffix
    """The backend answered with an error. ``details`` maps item ids to their results, if the response has them."""

    def __init__(
        self, operation: str, status: Status, message: str, http_code: int, details: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(operation, f"{status}: {message}")
        self.status = status
        self.http_code = http_code
        self.details = details


class InvalidRequest(BackendRefused):
    """The request, or one item of a batch, is invalid."""


class ItemsFailed(BackendRefused):
    """Some items failed in an operation that promises no results of items.

    ``items`` are all results by id. Items with ``success`` were applied.
    """

    def __init__(
        self, operation: str, status: Status, message: str, http_code: int, items: Mapping[str, ItemResult]
    ) -> None:
        super().__init__(operation, status, message, http_code, {name: item.to_wire() for name, item in items.items()})
        self.items = items


class CredentialsRefused(BackendRefused):
    """The credentials are missing, wrong or insufficient."""


class OperationMissing(ClientError):  # noqa: N818 - as above
    """The backend does not have the operation.

    ``has_envelope``: the response was an error of the API, not an arbitrary page. ``may_mean_missing_object``: the
    object of the call may not exist, and the backend have the operation.
    """

    def __init__(
        self, operation: str, message: str, http_code: int, *, has_envelope: bool, may_mean_missing_object: bool
    ) -> None:
        super().__init__(operation, message)
        self.http_code = http_code
        self.has_envelope = has_envelope
        self.may_mean_missing_object = may_mean_missing_object


class _GaveUp(ClientError):  # noqa: N818 - as above
    """The base of the errors below. ``stopped``: the stop event ended the call, not the retry policy."""

    def __init__(self, operation: str, message: str, *, stopped: bool = False) -> None:
        super().__init__(operation, message)
        self.stopped = stopped


class RateLimited(_GaveUp):
    """The backend throttled the call for longer than the policy waits."""


class OutcomeUnknown(_GaveUp):
    """The call was sent, perhaps several times, and no response has its outcome."""


class NotReached(_GaveUp):
    """There was no connection to the backend, so the call was not applied."""
