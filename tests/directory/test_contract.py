"""The contract suite for file sources, and for sources that violate it."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.access.records import User
from app.directory.source import EVERYTHING, End, Found, Reading, ReadRequest, Source, Verdict
from app.directory.testing.contract import SourceContract
from app.directory.testing.world import Content, SourceWorld
from tests.worlds.faulty_reads import FaultyReads
from tests.worlds.files import file_source


class FileWorld(SourceWorld):
    """An archive of JSON Lines. In a plain file, missing lines at its end cannot be detected."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "people.jsonl.gz"

    def source(self) -> Source:
        return file_source(self._path, name="people")

    def set_content(self, content: Content) -> None:
        records = [
            *(
                {"kind": "user", "userId": one, "name": person.name, "email": person.email}
                for one, person in content.people.items()
            ),
            *(
                {"kind": "membership", "organizationId": team, "userId": one}
                for team, members in content.teams.items()
                for one in sorted(members)
            ),
        ]
        self._lines = [json.dumps(record) for record in records]
        self._write()

    @contextmanager
    def cut(self, share: float) -> Iterator[None]:
        whole = self._path.read_bytes()
        self._path.write_bytes(whole[: int(len(whole) * share)])
        yield
        self._path.write_bytes(whole)

    def add_unusable(self, person_id: str, text: str) -> None:
        self._lines.insert(3, json.dumps({"kind": "user", "userId": person_id, "name": text, "email": ""}))
        self._write()

    def add_nested(self, person_id: str, depth: int) -> None:
        deep = "[" * depth + "]" * depth
        self._lines.insert(3, f'{{"kind":"user","userId":"{person_id}","name":"Deep","email":"","odd":{deep}}}')
        self._write()

    def failures(self):
        @contextmanager
        def of(path: Path) -> Iterator[Source]:
            yield file_source(path)

        plain = self._path.with_name("plain.jsonl.gz")
        plain.write_bytes(b"plain")
        return {
            "missing": of(self._path.with_name("missing.jsonl")),
            "a folder": of(self._path.parent),
            "no archive": of(plain),
        }

    def _write(self) -> None:
        # A read fails if the file's time or size changes. With a new file, a reader keeps the old one.
        unfinished = self._path.with_suffix(".part")
        unfinished.write_bytes(gzip.compress("".join(f"{line}\n" for line in self._lines).encode(), 1))
        unfinished.replace(self._path)


class TestFiles(FaultyReads, SourceContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> FileWorld:
        return FileWorld(tmp_path)


# A suite that nothing fails would be none.


class Faulty(SourceWorld):
    """A world whose source does one thing wrong."""

    secret = "hunter2"

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def source(self) -> "FaultySource":
        return FaultySource(self._fault, self._content)

    def set_content(self, content: Content) -> None:
        self._content = content

    @contextmanager
    def cut(self, share: float) -> Iterator[None]:
        yield

    def add_unusable(self, person_id: str, text: str) -> None:
        self._content = Content({**self._content.people, person_id: (text, "")}, self._content.teams)  # type: ignore[dict-item]

    def add_nested(self, person_id: str, depth: int) -> None:
        self._fault = "raises"

    def failures(self):
        @contextmanager
        def leaking() -> Iterator[FaultySource]:
            yield FaultySource("leaks", self._content)

        return {"leak": leaking()}


class FaultySource:
    name = "faulty"

    def __init__(self, fault: str, content: Content) -> None:
        self._fault = fault
        self._content = content

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        if self._fault == "raises":
            raise RuntimeError("deep")
        if self._fault == "leaks":
            yield End(Verdict.FAILED, "cannot log in with hunter2")
            return
        if self._fault == "two verdicts":
            yield End(Verdict.COMPLETE)
        held = [
            Found(User(user_id=one, name=name, email=email), one) for one, (name, email) in self._content.people.items()
        ]
        yield from held[5:] if self._fault == "skips" else held
        if self._fault != "no verdict":
            yield End(Verdict.COMPLETE)


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("skips", "test_a_read_yields_the_records_and_one_verdict"),
        ("two verdicts", "test_a_read_of_an_empty_directory_does_not_fail"),
        ("no verdict", "test_a_read_of_an_empty_directory_does_not_fail"),
        ("raises", "test_each_read_starts_from_the_beginning"),
        ("", "test_a_truncated_read_is_not_complete"),
        ("", "test_removed_people_are_gone"),
        ("", "test_memory_does_not_grow_with_the_directory"),
        ("", "test_no_record_contains_a_nul_character"),
        ("", "test_no_record_contains_half_a_surrogate_pair"),
        ("", "test_no_record_contains_deeply_nested_values"),
        ("", "test_no_reason_contains_a_secret"),
    ],
)
def test_a_source_that_violates_the_contract_fails_the_suite(fault: str, test: str) -> None:
    with pytest.raises((AssertionError, RuntimeError)):
        getattr(SourceContract(), test)(Faulty(fault))
