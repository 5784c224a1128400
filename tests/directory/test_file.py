"""Directory files: JSON Lines, gzip, truncated and changing files, and end records."""

import gzip
import os
import tracemalloc
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from app.access.records import User
from app.directory.configured import source_from_settings
from app.directory.file import MAX_LINE_BYTES, read_lines
from app.directory.settings import DirectorySettings
from app.directory.source import End, Found, Malformed, Verdict
from tests.worlds.files import file_source

ADA = b'{"kind": "user", "userId": "ada", "name": "Ada", "email": ""}\n'


def end_of(steps: list[object]) -> End:
    end = steps[-1]
    assert isinstance(end, End)
    return end


def test_lines_are_read_with_their_places(read_file) -> None:
    steps = read_file("d.jsonl", b"\xef\xbb\xbf" + ADA + b"\n   \nnonsense\n" + ADA.strip())
    assert isinstance(steps[0], Found)
    assert (steps[0].record, steps[0].place) == (User(user_id="ada", name="Ada", email=""), "file:1")
    assert isinstance(steps[1], Malformed)
    assert steps[1].place == "file:4"
    assert isinstance(steps[2], Found)
    assert steps[2].place == "file:5"
    assert steps[3] == End(Verdict.PARTIAL, "1 malformed record")


def test_an_archive_is_read_like_the_file_in_it(read_file) -> None:
    assert read_file("d.jsonl.gz", gzip.compress(ADA * 3)) == read_file("d.jsonl", ADA * 3)
    assert end_of(read_file("d.JSONL.GZ", gzip.compress(ADA))).verdict is Verdict.COMPLETE
    assert end_of(read_file("d.yaml.gz", gzip.compress(b"users: []"))).verdict is Verdict.COMPLETE


@pytest.mark.parametrize("content", [b"", b"\n\n", ADA])
def test_lines_are_complete_when_all_are_understood(read_file, content: bytes) -> None:
    assert end_of(read_file("d.jsonl", content)) == End(Verdict.COMPLETE)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("d.jsonl", ADA + b'{"kind": "user", "userId": "b', "file ends in the middle of a line"),
        ("d.jsonl", ADA + b'{"kind": "user", "userId": "\xe2\x82\n' + ADA, ":2: the bytes are not UTF-8"),
        ("d.jsonl", ADA + b"x" * (MAX_LINE_BYTES + 10), "file ends in the middle of a line"),
        ("d.jsonl.gz", gzip.compress(ADA * 100, mtime=0)[:-20], "cannot be read to its end"),
        ("d.jsonl.gz", gzip.compress(ADA, mtime=0)[:-12] + b"x" * 12, "the archive cannot be read to its end"),
        ("d.jsonl.gz", b"plain", "Not a gzipped file"),
        ("d.jsonl.gz", b"", "is empty, and no gzip archive"),
        ("d.csv", b"", "the name must end in"),
        ("directory", b"", "the name must end in"),
    ],
)
def test_reads_of_truncated_files_fail(read_file, name: str, content: bytes, reason: str) -> None:
    end = end_of(read_file(name, content))
    assert end.verdict is Verdict.FAILED
    assert reason in end.reason


def test_a_path_that_is_no_readable_file_fails(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    for name, reason in {
        "missing.jsonl": "No such file",
        "folder.jsonl": "is a folder; name the file in it",
        "pipe.jsonl": "is not a regular file",
        "x" * 300 + ".jsonl": "File name too long",
    }.items():
        end = end_of(list(file_source(tmp_path / name).read()))
        assert end.verdict is Verdict.FAILED
        assert reason in end.reason


def test_a_file_that_is_written_to_while_it_is_read_is_failed(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(ADA)
    steps = file_source(path).read()
    assert isinstance(next(steps), Found)
    path.write_bytes(ADA * 2)
    end = end_of(list(steps))
    assert end.verdict is Verdict.FAILED
    assert "was written to" in end.reason


def test_an_overlong_line_is_malformed_and_the_others_are_read(read_file) -> None:
    long = b'{"kind": "user", "userId": "' + b"x" * (3 * MAX_LINE_BYTES) + b'"}\n'
    steps = read_file("d.jsonl", ADA + long + ADA)
    assert [type(step) for step in steps] == [Found, Malformed, Found, End]
    assert steps[1].place == "file:2"
    assert "longer than 1,048,576 bytes" in steps[1].reason


class EndlessLine(BytesIO):
    """A line of 64 MiB that exists only while it is read."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 64 * 1024 * 1024

    def readline(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert size > 0
        chunk = min(size, self._left)
        self._left -= chunk
        return b"x" * chunk


@pytest.mark.extended
@pytest.mark.slow
def test_lines_are_read_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl.gz"

    def lines() -> Iterator[bytes]:
        for number in range(100_000):
            yield b'{"kind": "user", "userId": "user-%d", "name": "Name", "email": "a@b.example"}\n' % number

    with gzip.open(path, "wb", compresslevel=1) as file:
        file.writelines(lines())
    tracemalloc.start()
    try:
        assert sum(isinstance(step, Found) for step in file_source(path).read()) == 100_000
        assert sum(isinstance(step, Malformed) for step in read_lines(EndlessLine(), "x")) == 0
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1024 * 1024


def test_the_default_name_of_a_file_source_is_its_path(tmp_path: Path) -> None:
    assert file_source(tmp_path / "d.jsonl").name == str(tmp_path / "d.jsonl")
    assert file_source(tmp_path / "d.jsonl", name="people").name == "people"


END = b'{"end": true, "records": %d}\n'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (ADA * 2 + END % 2, ""),
        (END % 0, ""),
        (ADA + END % 1 + b"\n\n", ""),
        (ADA * 2, ""),
        (ADA + END % 2, "file:2: should have 2 records before it, but has 1"),
        (ADA * 3 + END % 2, "file:4: should have 2 records before it, but has 3"),
        (ADA + END % 1 + ADA, "file:3: comes after the end record"),
        (ADA + END % 1 + END % 1, "file:3: there is a second end record"),
        (ADA + b'{"end": true, "records": "1"}', 'file:2: not an end record, which is {"end": true, "records": 1}'),
        (ADA + b'{"end": false, "records": 1}', "file:2: not an end record"),
        (ADA + b'{"end": true, "records": 1, "record": 2}', "file:2: 'record' is not a field of the end record"),
        (b"nonsense\n" + ADA + END % 2, "1 malformed record"),
        (b"nonsense\n" + ADA + END % 1, "1 malformed record; file:3: should have 1 records before it, but has 2"),
    ],
)
def test_an_end_record_contains_the_number_of_records(content: bytes, reason: str) -> None:
    end = end_of(list(read_lines(BytesIO(content), "file")))
    assert end.verdict is (Verdict.PARTIAL if reason else Verdict.COMPLETE)
    assert end.reason.startswith(reason)
    assert bool(end.reason) is bool(reason)


@pytest.mark.parametrize("name", ["d.jsonl", "d.NDJSON.gz"])
def test_a_file_without_its_end_record_is_partial_if_it_has_to_have_one(tmp_path: Path, name: str) -> None:
    def read(content: bytes) -> End:
        packed = gzip.compress(content) if name.endswith("gz") else content
        (tmp_path / name).write_bytes(packed)
        source = {"type": "file", "path": tmp_path / name, "require_end": True}
        settings = DirectorySettings.model_validate({"sources": [source]})
        return end_of(list(source_from_settings(settings.sources[0]).read()))

    assert read(ADA * 9 + END % 9) == End(Verdict.COMPLETE)
    cut = read(ADA * 8)
    assert cut.verdict is Verdict.PARTIAL
    assert cut.reason.endswith('has no end record, {"end": true, "records": N}: it may be truncated')
    assert read(b"").verdict is Verdict.PARTIAL
