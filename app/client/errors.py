"""The errors of a call: what can go wrong, and what is known of its effect then.

    ClientError
    ├── BackendRefused            answered with an error: not applied, and the same call will be refused again
    │   ├── InvalidRequest        INVALID_ARGUMENT: something in the call is wrong
    │   ├── ItemsFailed           of an operation that promises nothing about items: ``items`` says what became of each
    │   └── CredentialsRefused    401 or 403, or no credentials to send: nothing else will work either
    ├── OperationMissing          404, 405 or 501: this backend does not have the operation, or what it is about
    ├── RateLimited               still throttled after all the waiting that is allowed: not applied
    ├── OutcomeUnknown            no readable answer in any try: applied or not
    └── NotReached                no connection in any try: certainly not applied

Where a call was tried several times the error tells the whole of it: when it was given up after one try with an
unknown outcome it is ``OutcomeUnknown``, however the later ones ended; when a later try was refused it is that refusal,
with ``repeated_blindly``. Errors of the HTTP library are kept as causes. No text here holds a credential.
"""

from collections.abc import Mapping

from app.contract.base import ItemResult
from app.contract.errors import Status
from app.foundation.outbound.failure import CallFailure


class ClientError(Exception):
    """A call that did not succeed. ``operation`` is its name in the contract's table, ``message`` one line for people.

    ``repeated_blindly`` says that an earlier try of the call had an unknown outcome: whatever this error says of the
    last one, the call may have been applied. ``failure`` is what is known of the last exchange, if it did not take
    place.
    """

    def __init__(self, operation: str, message: str) -> None:
        super().__init__(f"{operation}: {message}")
        self.operation = operation
        self.message = message
        self.repeated_blindly = False
        self.failure: CallFailure | None = None


class BackendRefused(ClientError):  # noqa: N818 - the class names of a tree of outcomes read best without a suffix
    """The backend answered with an error.

    ``details`` maps item ids to what became of each item, where the backend told.
    """

    def __init__(
        self, operation: str, status: Status, message: str, http_code: int, details: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(operation, f"{status}: {message}")
        self.status = status
        self.http_code = http_code
        self.details = details


class InvalidRequest(BackendRefused):
    """Something in the call is wrong: of a batch, perhaps a single item."""


class ItemsFailed(BackendRefused):
    """The answer names single items that were not done, though the operation promises nothing about items.

    ``items`` is all that it says of them, by id: those with ``success`` were done all the same.
    """

    def __init__(
        self, operation: str, status: Status, message: str, http_code: int, items: Mapping[str, ItemResult]
    ) -> None:
        super().__init__(operation, status, message, http_code, {name: item.to_wire() for name, item in items.items()})
        self.items = items


class CredentialsRefused(BackendRefused):
    """The credentials are missing, wrong, or do not reach this far."""


class OperationMissing(ClientError):  # noqa: N818 - as above
    """The backend does not have the operation, as far as one answer can tell.

    ``has_envelope`` says whether the answer was an error of the API (NOT_FOUND in an envelope) and not just any page,
    and ``own_error`` whether it may also mean that the thing which the call is about does not exist: the caller knows
    more.
    """

    def __init__(self, operation: str, message: str, http_code: int, *, has_envelope: bool, own_error: bool) -> None:
        super().__init__(operation, message)
        self.http_code = http_code
        self.has_envelope = has_envelope
        self.own_error = own_error


class _GaveUp(ClientError):  # noqa: N818 - as above
    """What the outcomes below share. ``stopped`` is true when it was not patience that ended but the stop event was
    set."""

    def __init__(self, operation: str, message: str, *, tries: int, stopped: bool = False) -> None:
        super().__init__(operation, message)
        self.tries = tries
        self.stopped = stopped


class RateLimited(_GaveUp):
    """The backend wants less traffic than this call, for longer than may be waited."""


class OutcomeUnknown(_GaveUp):
    """The call was sent, perhaps more than once, and no answer tells what became of it."""


class NotReached(_GaveUp):
    """The backend could not be connected to: the call was not applied."""
