"""The generated methods."""

import inspect

from app.client.generate import TARGET, generate
from app.client.methods import OperationMethods
from app.contract.base import NoParameters
from app.contract.operations import OPERATIONS


def test_methods_are_what_the_generator_writes() -> None:
    assert TARGET.read_text() == generate(), "run: python -m app.client.generate"


def test_methods_cover_every_operation() -> None:
    for operation in OPERATIONS:
        parameters = inspect.signature(getattr(OperationMethods, operation.name)).parameters
        assert ("request" in parameters) is (operation.request is not NoParameters)
        assert ("twin" in parameters) is operation.has_twin


class Recording(OperationMethods):
    """Remembers which operation a method calls."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def call(self, operation: object, request: object, *, twin: bool = False) -> object:  # type: ignore[override] # untyped here
        self.calls.append(operation)
        return request


def test_methods_call_their_own_operation() -> None:
    recording = Recording()
    for operation in OPERATIONS:
        given = () if operation.request is NoParameters else (operation.request.model_construct(),)
        sent = getattr(recording, operation.name)(*given)
        assert isinstance(sent, operation.request)
    assert recording.calls == list(OPERATIONS)
