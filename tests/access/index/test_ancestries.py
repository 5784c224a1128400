"""The ancestries of the index equal those of the plain function, for any tree, cycle or missing folder."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.access.decision.ancestry import ancestry_of
from app.access.index import folders
from app.access.index.folders import Folders
from app.access.index.index_view import IndexView
from app.access.index.layout import FOLDER, SEPARATOR, entry_key
from app.access.records import AccessType, Folder
from tests.choice import sampled


class Entries:
    """The entries of folders: the parent of each by its number."""

    def __init__(self, parents: dict[int, int | None], typed: Iterable[int] = ()) -> None:
        self.entries = {}
        for number, parent in parents.items():
            values = ["r" if number in typed else "", "" if parent is None else f"f{parent}"]
            self.entries[entry_key(FOLDER, "acme", f"f{number}")] = SEPARATOR.join(values).encode()

    def get(self, key: bytes) -> bytes | None:
        return self.entries.get(key)

    def items_below(self, prefix: bytes) -> Iterable[tuple[bytes, bytes]]:
        return ((key, value) for key, value in self.entries.items() if key.startswith(prefix))


PARENTS = st.dictionaries(st.integers(0, 9), st.none() | st.integers(0, 10))


@given(parents=PARENTS, typed=st.frozensets(st.integers(0, 9)), asked=st.lists(st.integers(0, 10), max_size=12))
def test_ancestries_equal_the_plain_function(
    parents: dict[int, int | None], typed: frozenset[int], asked: list[int]
) -> None:
    def folder(folder_id: str) -> Folder | None:
        number = int(folder_id[1:])
        if number not in parents:
            return None
        parent = parents[number]
        return Folder(
            organization_id="acme",
            folder_id=folder_id,
            folder_name="",
            parent_folder_id=None if parent is None else f"f{parent}",
            access_type=AccessType.RESTRICTED if number in typed else None,
        )

    entries, kept = Entries(parents, typed), Folders()
    for number in asked:
        view = IndexView(entries, 1, [], kept)
        assert view.ancestry_of("acme", f"f{number}") == ancestry_of(folder, f"f{number}")


@pytest.mark.parametrize("step", sampled([30, 60, 1], sample=2))
def test_deep_trees_take_little_memory(step: int) -> None:
    depth = 2_000
    kept = Folders()
    view = IndexView(Entries({number: number - 1 if number else None for number in range(depth)}), 1, [], kept)
    asked = range(0, depth, step)
    for number in asked:
        assert len(view.ancestry_of("acme", f"f{number}").folders) == number + 1
    size = sum(len(ancestry.resources) for ancestry in kept.ancestries.values())
    assert size <= sum(number + 1 for number in asked) + 128 * 128


def test_few_folders_are_kept_after_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_MAX_KEPT", 100)
    kept = Folders()
    view = IndexView(Entries({0: None}), 1, [], kept)
    for number in range(40):
        view.ancestry_of("acme", f"f{number}")
    assert not kept.is_full
    for number in range(40, 101):
        view.ancestry_of("acme", f"f{number}")
    assert kept.is_full
