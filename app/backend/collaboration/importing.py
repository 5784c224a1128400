"""The import of feature data from a file.

JSON Lines, gzipped or not, one record a line: ``{"kind": "comment", "organizationId": …, …}`` (see
``import_records``). Each record has its own id, and one whose id exists takes its place: a file may be imported
twice, or again after it was stopped. Lines are read and written in batches, each in a transaction of its own, so that
memory is bounded and a server beside it goes on. What is imported is history: it produces no activities, notifications
or webhook events.
"""

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, select

from app.backend.collaboration.import_records import MODELS
from app.backend.collaboration.import_writing import Placed, Refused, write
from app.backend.embedders.embedder import Embedder
from app.backend.http.dispatch import lock_for_writing
from app.backend.judgments.record import parse_judgment
from app.backend.judgments.store import PreparedJudgment, prepare_judgments, write_judgments
from app.backend.resources.containers import (
    NO_DOCUMENT,
    NO_ORGANIZATION,
    ensure_document,
    ensure_organization,
    organization_exists,
)
from app.backend.resources.tables import DOCUMENT
from app.backend.scope import Scope, existing
from app.backend.security.tables import API_KEY
from app.contract.errors import InvalidArgument
from app.contract.storable import refuse_unstorable
from app.contract.validation import first_error
from app.foundation.database.engine import reading, writing
from app.http.strict_json import parse

MAX_LINE_BYTES = 4 * 1024 * 1024
"""A longer line is malformed; it is skipped without being kept in memory."""
_BATCH = 1000
_BATCH_BYTES = 8 * 1024 * 1024
_GZIP = b"\x1f\x8b"
_JUDGMENT = "judgment"


class ImportFailedError(Exception):
    """The file cannot be imported, or not to its end; one line for the user."""


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import. ``on_problem`` is told what is wrong with a line, as ``FILE:LINE: problem``; ``on_progress`` how many
    lines were dealt with since it was told last.
    """

    engine: Engine
    embedder: Embedder
    api_key_id: str
    now: int
    """What has no time of its own happened then; epoch milliseconds."""
    create_missing: bool
    """Whether organizations and documents that are not there are made along the way."""
    on_problem: Callable[[str], None]
    on_progress: Callable[[int], None]
    counts: dict[str, int] = field(default_factory=dict)
    """Records written, by kind."""

    def run(self, path: Path) -> int:
        """Imports the file; returns how many lines were refused. Raises ``ImportFailedError``."""
        with reading(self.engine) as connection:
            if connection.scalar(select(API_KEY.c.api_key_id).where(API_KEY.c.api_key_id == self.api_key_id)) is None:
                raise ImportFailedError(f"there is no API key {self.api_key_id}")
        refused = 0
        try:
            with _opened(path) as stream:
                for batch, problems in _batches(stream):
                    problems.extend(self._write(batch))
                    for problem in sorted(problems):
                        self.on_problem(f"{path.name}:{problem.line}: {problem.problem}")
                    refused += len(problems)
                    self.on_progress(len(batch))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ImportFailedError(f"{path}: the compressed file is damaged or cut off") from error
        except OSError as error:
            raise ImportFailedError(f"{path}: {error.strerror or error}") from error
        return refused

    def _write(self, batch: Sequence[Placed]) -> list[Refused]:
        judgments = [placed for placed in batch if placed.kind == _JUDGMENT]
        prepared = prepare_judgments([placed.record for placed in judgments], self.embedder)
        refused: list[Refused] = []
        with writing(self.engine) as connection:
            lock_for_writing(connection, self.api_key_id)
            known, missing = self._known(connection, batch)
            refused.extend(missing)
            kept = {placed.line for placed in known}
            for kind in MODELS:
                for organization_id, records in _by_organization(known, kind):
                    scope = Scope(self.api_key_id, organization_id)
                    problems = write(connection, scope, kind, records, self.now)
                    refused.extend(problems)
                    self._count(kind, len(records) - len(problems))
            wanted: list[PreparedJudgment] = [
                one for placed, one in zip(judgments, prepared, strict=True) if placed.line in kept
            ]
            write_judgments(connection, self.api_key_id, wanted, self.now)
            self._count(_JUDGMENT, len(wanted))
        return refused

    def _known(self, connection: Connection, batch: Sequence[Placed]) -> tuple[list[Placed], list[Refused]]:
        """The records whose organization and document are there, or are made now; and the others."""
        known: list[Placed] = []
        missing: list[Refused] = []
        wanted: dict[str, dict[str, None]] = {}
        for placed in batch:
            documents = wanted.setdefault(placed.record.organization_id, {})
            if placed.record.document_id is not None:
                documents[placed.record.document_id] = None
        documents_of: dict[str, set[str] | None] = {}
        for organization_id, documents in wanted.items():
            documents_of[organization_id] = self._documents(connection, organization_id, list(documents))
        for placed in batch:
            there = documents_of[placed.record.organization_id]
            if there is None:
                missing.append(Refused(placed.line, f"organizationId: {NO_ORGANIZATION}"))
            elif placed.record.document_id is not None and placed.record.document_id not in there:
                missing.append(Refused(placed.line, f"documentId: {NO_DOCUMENT}"))
            else:
                known.append(placed)
        return known, missing

    def _documents(self, connection: Connection, organization_id: str, document_ids: list[str]) -> set[str] | None:
        """Those of the documents that are there, made if they may be; None without their organization."""
        scope = Scope(self.api_key_id, organization_id)
        if self.create_missing:
            ensure_organization(connection, scope, self.now)
        elif not organization_exists(connection, scope):
            return None
        there = existing(connection, scope, DOCUMENT.c.document_id, document_ids)
        if self.create_missing:
            for document_id in document_ids:
                if document_id not in there:
                    ensure_document(connection, scope, document_id, self.now)
            there.update(document_ids)
        return there

    def _count(self, kind: str, number: int) -> None:
        if number:
            self.counts[kind] = self.counts.get(kind, 0) + number


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_gzip = file.read(len(_GZIP)) == _GZIP
    return cast("IO[bytes]", gzip.open(path, "rb")) if is_gzip else path.open("rb")


def _batches(stream: IO[bytes]) -> Iterator[tuple[list[Placed], list[Refused]]]:
    """The stream's records in batches, each with the problems of the lines that it comes from."""
    batch: list[Placed] = []
    problems: list[Refused] = []
    size = number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        size += len(line)
        if len(line) > MAX_LINE_BYTES:
            problems.append(Refused(number, f"longer than {MAX_LINE_BYTES} bytes"))
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
        elif line.strip():
            try:
                batch.append(Placed(number, *_record(line.strip())))
            except InvalidArgument as error:
                problems.append(Refused(number, error.message.replace("the body", "the line")))
        if len(batch) + len(problems) >= _BATCH or size >= _BATCH_BYTES:
            yield batch, problems
            batch, problems, size = [], [], 0
    if batch or problems:
        yield batch, problems


def _record(line: bytes) -> tuple[str, Any]:
    """The record of a line, and its kind. Raises ``InvalidArgument`` that names the field."""
    value = parse(line)
    if not isinstance(value, dict):
        raise InvalidArgument("must be a JSON object")
    kind = value.get("kind")
    if kind == _JUDGMENT and isinstance(kind, str):
        try:
            return kind, parse_judgment({name: inner for name, inner in value.items() if name != "kind"})
        except InvalidArgument as error:
            raise InvalidArgument(error.message.removeprefix("judgment.").removeprefix("data.")) from error
    model = MODELS.get(kind) if isinstance(kind, str) else None
    if model is None or not isinstance(kind, str):
        raise InvalidArgument(f"kind: must be one of {', '.join([*MODELS, _JUDGMENT])}")
    try:
        refuse_unstorable(value)
        return kind, model.from_wire(value)
    except InvalidArgument as error:
        raise InvalidArgument(error.message.removeprefix("data.")) from error
    except ValidationError as error:
        raise InvalidArgument(first_error(error, value, root="record").removeprefix("record.")) from error


def _by_organization(records: Sequence[Placed], kind: str) -> Iterator[tuple[str, list[Placed]]]:
    found: dict[str, list[Placed]] = {}
    for placed in records:
        if placed.kind == kind:
            found.setdefault(placed.record.organization_id, []).append(placed)
    yield from found.items()
