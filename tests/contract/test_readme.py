"""The tables of the README match the code."""

from collections.abc import Iterator
from pathlib import Path

import app.contract
from app.contract.errors import ERROR_CLASS, HTTP_CODE, Status
from app.contract.operation import AnyOperation
from app.contract.operations import OPERATIONS

TEXT = (Path(app.contract.__file__).parent / "README.md").read_text(encoding="utf-8")


def rows_of(section: str) -> Iterator[list[str]]:
    """The cells of the only table in a section, without its header."""
    body = TEXT.split(f"\n## {section}\n")[1].split("\n## ")[0]
    lines = [line for line in body.splitlines() if line.startswith("| ")]
    for line in lines[1:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


def row_of(operation: AnyOperation) -> list[str]:
    return [
        operation.title,
        f"`{operation.name}`",
        f"`{operation.path}`",
        operation.other_version_path.split("/")[1] if operation.other_version_path else "–",
        operation.tier.value,
        operation.auth.value,
        "reads" if operation.is_read else "writes" if operation.is_repeatable else "writes once",
        f"`{operation.items_field}` {operation.max_items:,}" if operation.items_field else "–",
    ]


def test_table_of_operations() -> None:
    assert list(rows_of("Operations")) == [row_of(operation) for operation in OPERATIONS]


def test_table_of_failures() -> None:
    listed = {status.strip("`"): (codes.split(", "), name.strip("`")) for status, codes, name, _ in rows_of("Failures")}
    assert list(listed) == [status.value for status in Status]
    for status in Status:
        codes, name = listed[status]
        assert (codes[0], name) == (str(HTTP_CODE[status]), ERROR_CLASS[status].__name__)


def test_operations_with_other_envelopes_are_listed() -> None:
    body = " ".join(TEXT.split("\n## Envelopes\n")[1].split("\n## ")[0].split())
    exceptions = [operation for operation in OPERATIONS if operation.bare_result or not operation.has_data]
    assert exceptions
    for operation in exceptions:
        assert operation.title in body
