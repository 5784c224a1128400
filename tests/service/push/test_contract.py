"""Runs the contract suite of sources for uploads: a body is a source that is read once."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BytesIO
from pathlib import Path

import pytest

from app.directory.pushes import Allowed
from app.directory.source import EVERYTHING, Reading, ReadRequest, Source
from app.directory.testing.contract import SourceContract
from app.directory.testing.world import Content, SourceWorld, UnsupportedError
from app.service.push.upload import UploadedSource
from tests.worlds.faulty_reads import FaultyReads


class Sent:
    """An application that sends its records at each read."""

    def __init__(self, path: Path) -> None:
        self.name = "app"
        self._path = path

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        with self._path.open("rb") as body:
            yield from UploadedSource(self.name, body, Allowed()).read(request)


class PushWorld(SourceWorld):
    """An application with users and groups, and the body of its upload."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "body"

    def source(self) -> Source:
        return Sent(self._path)

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
        lines = [*records, {"end": True, "records": len(records)}]
        self._path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    @contextmanager
    def cut(self, share: float) -> Iterator[None]:
        whole = self._path.read_bytes()
        self._path.write_bytes(whole[: int(len(whole) * share)])
        yield
        self._path.write_bytes(whole)

    def add_unusable(self, person_id: str, text: str) -> None:
        raise UnsupportedError("one wrong line refuses all of it: tests/service/push/test_everything.py")

    def add_nested(self, person_id: str, depth: int) -> None:
        raise UnsupportedError("one wrong line refuses all of it: tests/service/push/test_everything.py")

    def failures(self) -> dict[str, AbstractContextManager[Source]]:
        @contextmanager
        def of(body: bytes) -> Iterator[Source]:
            yield UploadedSource("app", BytesIO(body), Allowed())

        return {"nothing": of(b""), "no JSON": of(b"<html>\n"), "another number": of(b'{"end": true, "records": 7}\n')}


class TestEverything(FaultyReads, SourceContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> PushWorld:
        return PushWorld(tmp_path)
