"""The operations of the contract by the paths that a request comes to."""

from app.contract.operation import AnyOperation
from app.contract.operations import OPERATIONS

_BY_PATH = {path: operation for operation in OPERATIONS for path in operation.paths}


def by_path(path: str) -> AnyOperation | None:
    """The operation that a path serves, under either version; None for a path that is not in the contract."""
    return _BY_PATH.get(path)
