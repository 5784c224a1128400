"""The ancestries of the index equal those of the plain function, for any tree, cycle or missing folder."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.access.decision.ancestry import ancestry_of
from app.access.index.layout import FOLDER, SEPARATOR, key_of
from app.access.index.view import IndexView


class Folders:
    """The entries of folders: the parent of each by its number."""

    def __init__(self, parents: dict[int, int | None], typed: Iterable[int] = ()) -> None:
        self.entries = {}
        for number, parent in parents.items():
            values = ["r" if number in typed else "", "" if parent is None else f"f{parent}"]
            self.entries[key_of(FOLDER, "acme", f"f{number}")] = SEPARATOR.join(values).encode()

    def get(self, key: bytes) -> bytes | None:
        return self.entries.get(key)

    def items_below(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        return ((key, value) for key, value in self.entries.items() if key.startswith(prefix))


PARENTS = st.dictionaries(st.integers(0, 9), st.none() | st.integers(0, 10))


@given(parents=PARENTS, typed=st.frozensets(st.integers(0, 9)), asked=st.lists(st.integers(0, 10), max_size=12))
def test_ancestries_equal_the_plain_function(
    parents: dict[int, int | None], typed: frozenset[int], asked: list[int]
) -> None:
    folders = Folders(parents, typed)
    view = IndexView(folders, 1, [])
    for number in asked:
        plain = ancestry_of(lambda folder_id: IndexView(folders, 1, [])._folder("acme", folder_id), f"f{number}")
        assert view.ancestry_of("acme", f"f{number}") == plain


@pytest.mark.parametrize("step", [1, 30, 60])
def test_deep_trees_take_little_memory(step: int) -> None:
    depth = 2_000
    view = IndexView(Folders({number: number - 1 if number else None for number in range(depth)}), 1, [])
    asked = range(0, depth, step)
    for number in asked:
        assert len(view.ancestry_of("acme", f"f{number}").folders) == number + 1
    kept = sum(len(ancestry.resources) for ancestry in view._ancestries.values())
    assert kept <= sum(number + 1 for number in asked) + 128 * 128
