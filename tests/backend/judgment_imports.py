"""Many judgments at once, written as a handler writes one."""

from collections.abc import Iterable, Iterator
from itertools import islice

from sqlalchemy import Engine

from app.backend.embedders.embedder import Embedder
from app.backend.judgments.record import JudgmentInput
from app.backend.judgments.store import prepare_judgments, write_judgments
from app.foundation.database.engine import writing

_AT_ONCE = 1000


def import_judgments(
    engine: Engine, embedder: Embedder, api_key_id: str, records: Iterable[JudgmentInput], now: int
) -> Iterator[int]:
    """Writes the judgments (see `record.parse_judgment`) in batches, each whole or not at all, and tells after each
    how many there are so far.

    Vectors are made between the transactions, so that others can write meanwhile. Stopped halfway, it may be run again
    from the start: a judgment that is there already is replaced by itself.
    """
    remaining = iter(records)
    count = 0
    while batch := list(islice(remaining, _AT_ONCE)):
        prepared = prepare_judgments(batch, embedder)
        with writing(engine) as connection:
            write_judgments(connection, api_key_id, prepared, now)
        count += len(batch)
        yield count
