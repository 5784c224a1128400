"""Divides items into batches and groups."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

_T = TypeVar("_T")
_K = TypeVar("_K")


def batches(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """Parts of at most ``size`` items, in their order."""
    return (items[start : start + size] for start in range(0, len(items), size))


def grouped(pairs: Iterable[tuple[_K, _T]]) -> dict[_K, list[_T]]:
    """The values by key, in the order of the pairs."""
    groups: dict[_K, list[_T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
