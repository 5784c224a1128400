"""Finds the operation of the contract for a request path."""

from app.contract.operation import AnyOperation
from app.contract.operations import OPERATIONS

_BY_PATH = {path: operation for operation in OPERATIONS for path in operation.paths}


def by_path(path: str) -> AnyOperation | None:
    """The operation of a path in either version of the API; None for other paths."""
    return _BY_PATH.get(path)
