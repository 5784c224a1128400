"""Divides sequences into batches."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def batches(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """Parts of at most ``size`` items, in their order."""
    return (items[start : start + size] for start in range(0, len(items), size))
