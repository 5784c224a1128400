"""The problems of what a merge by key touches: what was kept of it before gives way to what it has now.

Kept are texts and numbers alone (``keeping.py``). A text begins with the record that it is about, so those about
touched records are known by that; how many there were is counted from the records as they were given before.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, select

from app.model.refresh.closure import Before, rows_left_out_before
from app.model.refresh.problems import ProblemList, ProblemSort
from app.model.refresh.reasons import SORTS
from app.model.refresh.scratch import ModelTables, ScratchTables, described
from app.store.directory_tables import DirectoryProblemRow
from app.store.record_tables import core_table

FIRST = core_table(DirectoryProblemRow)

Text = tuple[int, str, str, str]
"""Source, sort, place and reason of a problem that is kept."""

AGAIN = "as well, which counts"
"""How a text ends that tells of a record that a source gives again from another object."""

_CUT = "…"


class Outdated:
    """What of the kept problems is outdated by one merge by key, in the transaction of its connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: dict[int, list[tuple[str, str, str]]] | None = None
        self.fewer = Counter[tuple[int, str]]()
        """(source, sort) → how many there are no more."""
        self.gone: set[Text] = set()
        """Those of which the text is kept."""

    @property
    def anything(self) -> bool:
        """Whether there is any."""
        return bool(self.fewer or self.gone)

    def note(self, tables: ModelTables, before: Before, *, renamed: bool) -> None:
        """Takes down what of the touched keys of a kind did not count, while the access model is as it was."""
        if before:
            self.note_rows(tables, before, rows_left_out_before(self._connection, tables, renamed=renamed))

    def note_rows(self, tables: ScratchTables, before: Before, rows: Iterable[Row[Any]]) -> None:
        """The same, of rows that are at hand."""
        for (source_id, cause), count in before.items():
            self.fewer[source_id, SORTS[cause].value] += count
        for row in rows:
            for sort, place, reason in self._about(tables, row):
                if sort in _OF_MERGE and not reason.endswith(AGAIN):
                    self._forget((row.source_id, sort, place, reason))

    def note_again(self, tables: ModelTables, counts: Mapping[int, int], rows: Iterable[Row[Any]]) -> None:
        """Takes down what sources gave again under the touched keys."""
        for source_id, count in counts.items():
            self.fewer[source_id, ProblemSort.DUPLICATE.value] += count
        for row in rows:
            for sort, place, reason in self._about(tables, row):
                if sort == ProblemSort.DUPLICATE and reason.endswith(AGAIN):
                    self._forget((row.source_id, sort, place, reason))

    def note_cycles(self, before: ProblemList, source_ids: Mapping[str, int]) -> None:
        """Takes down the groups in each other that the change may have parted, as they stood in the access model: which
        source told of them is known by the text."""
        told_as: dict[str, int] = {}
        for (source, found_as), one in before.by_source.items():
            self.fewer[source_ids[source], found_as.value] += one.count
            told_as |= {problem.reason: source_ids[source] for problem in one.first}
        for source_id, texts in self._texts().items():
            for reason, sort, place in texts:
                if sort == ProblemSort.GROUP_CYCLE and reason in told_as:
                    self.gone.add((source_id, sort, place, reason))
                    self.fewer[told_as[reason], sort] -= 1
                    self.fewer[source_id, sort] += 1

    def _forget(self, text: Text) -> None:
        if text in self.gone:
            return
        self.gone.add(text)
        if text[1] == ProblemSort.FOLDER_CYCLE:
            # By the cause alone it was taken for one that refers to what is not there.
            self.fewer[text[0], ProblemSort.DANGLING.value] -= 1
            self.fewer[text[0], text[1]] += 1

    def _about(self, tables: ScratchTables, row: Row[Any]) -> Iterable[tuple[str, str, str]]:
        """Sort, place and reason of what is kept about a record."""
        texts = self._texts().get(row.source_id, [])
        begins = f"{described(tables, row)} "
        for number in range(bisect_left(texts, (begins, "", "")), len(texts)):
            reason, sort, place = texts[number]
            if not reason.startswith(begins):
                break
            # Ids that are too long to be told as a whole are told apart by where they stand.
            if _CUT not in begins or place == row.place:
                yield sort, place, reason

    def _texts(self) -> dict[int, list[tuple[str, str, str]]]:
        if self._kept is None:
            self._kept = {}
            for row in self._connection.execute(select(FIRST).where(FIRST.c.sort.in_(_ASKED_FOR))):
                self._kept.setdefault(row.source_id, []).append((row.reason, row.sort, row.place))
            for texts in self._kept.values():
                texts.sort()
        return self._kept


_OF_MERGE = frozenset({*(sort.value for sort in SORTS.values()), ProblemSort.FOLDER_CYCLE.value})
_ASKED_FOR = sorted({*_OF_MERGE, ProblemSort.DUPLICATE.value, ProblemSort.GROUP_CYCLE.value})
