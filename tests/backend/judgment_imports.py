"""Writes many judgments."""

from collections.abc import Iterable, Iterator
from itertools import islice

from sqlalchemy import Engine

from app.backend.embedders.embedder import Embedder
from app.backend.judgments.record import JudgmentInput
from app.backend.judgments.store import prepare_judgments, write_judgments
from app.foundation.database.engine import writing

_BATCH = 1000


def import_judgments(
    engine: Engine, embedder: Embedder, api_key_id: str, records: Iterable[JudgmentInput], now: int
) -> Iterator[int]:
    """Writes the judgments in batches, and yields after each batch how many were written in total."""
    remaining = iter(records)
    count = 0
    while batch := list(islice(remaining, _BATCH)):
        prepared = prepare_judgments(batch, embedder)
        with writing(engine) as connection:
            write_judgments(connection, api_key_id, prepared, now)
        count += len(batch)
        yield count
