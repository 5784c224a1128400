"""Imports feature data from a file.

The file is JSON Lines, optionally gzipped, with one record per line (see ``import_records``). A record replaces the
stored one with its id, so a file may be imported again. Lines are written in batches, each in its own transaction, so
memory is bounded and a server may run at the same time. Imported records create no activities, notifications or webhook
messages.
"""

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from pydantic import ValidationError
from sqlalchemy import Connection, Engine, select

from app.backend.collaboration.import_records import MODELS
from app.backend.collaboration.import_writing import ImportLine, LineProblem, write
from app.backend.embedders.embedder import Embedder
from app.backend.judgments.record import parse_judgment
from app.backend.judgments.store import prepare_judgments, write_judgments
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
from app.backend.storage.locks import lock_for_writing
from app.contract.errors import InvalidArgument
from app.contract.validation import first_error
from app.foundation.batches import grouped
from app.foundation.database.engine import reading, writing
from app.http.strict_json import parse

MAX_LINE_BYTES = 4 * 1024 * 1024
"""A longer line is skipped and reported."""
_BATCH_LINES = 1000
_BATCH_BYTES = 8 * 1024 * 1024
_GZIP = b"\x1f\x8b"
_JUDGMENT = "judgment"


class ImportFailedError(Exception):
    """The file cannot be imported, or not completely. One line for the user."""


@dataclass(frozen=True, kw_only=True)
class Import:
    """An import. Calls ``on_problem`` with ``FILE:LINE: problem``, ``on_progress`` with the size of each batch."""

    engine: Engine
    embedder: Embedder
    api_key_id: str
    now: int
    """The time of records without one, in epoch milliseconds."""
    create_missing: bool
    """Whether to create missing organizations and documents."""
    on_problem: Callable[[str], None]
    on_progress: Callable[[int], None]
    counts: Counter[str] = field(default_factory=Counter)
    """Written records by kind."""

    def run(self, path: Path) -> int:
        """Imports the file. Returns the number of lines with a problem. Raises ``ImportFailedError``."""
        with reading(self.engine) as connection:
            if connection.scalar(select(API_KEY.c.api_key_id).where(API_KEY.c.api_key_id == self.api_key_id)) is None:
                raise ImportFailedError(f"there is no API key {self.api_key_id}")
        count = 0
        for lines, problems in _read(path):
            problems.extend(self._write(lines))
            for number, problem in sorted(problems):
                self.on_problem(f"{path.name}:{number}: {problem}")
            count += len(problems)
            self.on_progress(len(lines))
        return count

    def _write(self, lines: Sequence[ImportLine]) -> list[LineProblem]:
        judgments = [line for line in lines if line.kind == _JUDGMENT]
        # Embedding is slow, so it precedes the transaction, which rejects some of the lines.
        prepared = prepare_judgments([line.record for line in judgments], self.embedder)
        with writing(self.engine) as connection:
            lock_for_writing(connection, self.api_key_id)
            problems = self._ensure_places(connection, lines)
            rejected = {number for number, _ in problems}
            for kind in MODELS:
                accepted = [line for line in lines if line.kind == kind and line.number not in rejected]
                by_organization = grouped((line.record.organization_id, line) for line in accepted)
                for organization_id, of_organization in by_organization.items():
                    scope = Scope(self.api_key_id, organization_id)
                    unwritten = write(connection, scope, kind, of_organization, self.now)
                    problems.extend(unwritten)
                    self._count(kind, len(of_organization) - len(unwritten))
            decisions = [
                judgment for line, judgment in zip(judgments, prepared, strict=True) if line.number not in rejected
            ]
            write_judgments(connection, self.api_key_id, decisions, self.now)
            self._count(_JUDGMENT, len(decisions))
        return problems

    def _ensure_places(self, connection: Connection, lines: Sequence[ImportLine]) -> list[LineProblem]:
        """Creates missing organizations and documents if asked to. Returns the problems of lines without one."""
        problems: list[LineProblem] = []
        for organization_id, in_organization in grouped((line.record.organization_id, line) for line in lines).items():
            document_ids = dict.fromkeys(line.record.document_id for line in in_organization)
            existing_ids = self._ensure_documents(connection, organization_id, list(filter(None, document_ids)))
            for number, _, record in in_organization:
                if existing_ids is None:
                    problems.append(LineProblem(number, f"organizationId: {NO_ORGANIZATION}"))
                elif record.document_id is not None and record.document_id not in existing_ids:
                    problems.append(LineProblem(number, f"documentId: {NO_DOCUMENT}"))
        return problems

    def _ensure_documents(
        self, connection: Connection, organization_id: str, document_ids: list[str]
    ) -> set[str] | None:
        """The existing ones of these documents, after the creation of missing ones. None without the organization."""
        scope = Scope(self.api_key_id, organization_id)
        if self.create_missing:
            ensure_organization(connection, scope, self.now)
        elif not organization_exists(connection, scope):
            return None
        existing_ids = existing(connection, scope, DOCUMENT.c.document_id, document_ids)
        if self.create_missing:
            for document_id in document_ids:
                if document_id not in existing_ids:
                    ensure_document(connection, scope, document_id, self.now)
            existing_ids.update(document_ids)
        return existing_ids

    def _count(self, kind: str, number: int) -> None:
        if number:
            self.counts[kind] += number


def _read(path: Path) -> Iterator[tuple[list[ImportLine], list[LineProblem]]]:
    """The batches of the file. Raises ``ImportFailedError``."""
    try:
        with _open(path) as stream:
            yield from _batches(stream)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ImportFailedError(f"{path}: the compressed file is damaged or cut off") from error
    except OSError as error:
        raise ImportFailedError(f"{path}: {error.strerror or error}") from error


def _open(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        is_gzip = file.read(len(_GZIP)) == _GZIP
    return cast("IO[bytes]", gzip.open(path, "rb")) if is_gzip else path.open("rb")


def _batches(stream: IO[bytes]) -> Iterator[tuple[list[ImportLine], list[LineProblem]]]:
    """The parsed lines in batches, with the problems of the others."""
    lines: list[ImportLine] = []
    problems: list[LineProblem] = []
    size = number = 0
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        size += len(raw)
        if len(raw) > MAX_LINE_BYTES:
            problems.append(LineProblem(number, f"longer than {MAX_LINE_BYTES} bytes"))
            while raw and not raw.endswith(b"\n"):
                raw = stream.readline(MAX_LINE_BYTES)
        elif raw.strip():
            try:
                lines.append(ImportLine(number, *_record(raw.strip())))
            except InvalidArgument as error:
                problems.append(LineProblem(number, error.message))
        if len(lines) + len(problems) >= _BATCH_LINES or size >= _BATCH_BYTES:
            yield lines, problems
            lines, problems, size = [], [], 0
    if lines or problems:
        yield lines, problems


def _record(raw: bytes) -> tuple[str, Any]:
    """The kind and the record of a line. Raises ``InvalidArgument`` with the path of the field."""
    value = parse(raw, noun="the line")
    if not isinstance(value, dict):
        raise InvalidArgument("must be a JSON object")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in {*MODELS, _JUDGMENT}:
        raise InvalidArgument(f"kind: must be one of {', '.join([*MODELS, _JUDGMENT])}")
    try:
        if kind == _JUDGMENT:
            return kind, parse_judgment({name: inner for name, inner in value.items() if name != "kind"})
        return kind, MODELS[kind].from_wire(value)
    except ValidationError as error:
        raise InvalidArgument(first_error(error, value, root="")) from error
