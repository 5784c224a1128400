"""Objects in Moto's S3 server, an independent implementation."""

import gzip
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from app.directory.configured import source_from_settings
from app.directory.connectors.objects import stored
from app.directory.settings import CsvSourceSettings
from app.directory.source import Answered, End, Found, ReadRequest, Source, Verdict
from app.directory.testing.contract import SourceContract
from tests.directory.moto import CREDENTIALS, missing, put, running_moto
from tests.directory.test_csv import CsvWorld
from tests.worlds.faulty_reads import FaultyReads

pytestmark = [pytest.mark.external, pytest.mark.process, pytest.mark.xdist_group("moto")]

USERS = b"userId,name,email\n" + b"".join(b"p%04d,Name,p%04d@acme.example\n" % (n, n) for n in range(2000))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if reason := missing():
        (pytest.fail if os.environ.get("USHER_TEST_MOTO") else pytest.skip)(reason)
    with running_moto(tmp_path_factory.mktemp("moto") / "log") as url:
        yield url


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def object_source(server: str, path: str, **settings: Any) -> Source:
    given = {"type": "csv", "path": path, "store": {"endpoint": server}, **settings}
    return source_from_settings(CsvSourceSettings.model_validate(given))


class MotoWorld(CsvWorld):
    """An archive of a CSV file in a bucket. A cut read is one of an archive that lacks its end."""

    secret = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]

    def __init__(self, server: str, folder: Path) -> None:
        super().__init__(folder)
        self._server = server

    def source(self) -> Source:
        return object_source(self._server, "s3://bucket/world.csv.gz", name="people")

    @contextmanager
    def cut(self, share: float) -> Iterator[None]:
        whole = self._path.read_bytes()
        put(self._server, "world.csv.gz", whole[: int(len(whole) * share)])
        yield
        put(self._server, "world.csv.gz", whole)

    def failures(self) -> Mapping[str, AbstractContextManager[Source]]:
        put(self._server, "plain.csv.gz", b"plain")
        return {
            key: nullcontext(object_source(self._server, f"s3://{key}"))
            for key in ("bucket/missing.csv", "bucket/plain.csv.gz", "other/people.csv")
        }

    def _write(self) -> None:
        super()._write()
        put(self._server, "world.csv.gz", self._path.read_bytes())


class TestMoto(FaultyReads, SourceContract):
    @pytest.fixture
    def world(self, server: str, tmp_path: Path) -> MotoWorld:
        return MotoWorld(server, tmp_path)


@pytest.mark.parametrize("key", ["a/people.csv", "ä b#1%20/people.csv.gz"])
def test_an_object_is_read_and_then_skipped(server: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 3_000)
    put(server, key, gzip.compress(USERS) if key.endswith("gz") else USERS)
    source = object_source(server, f"s3://bucket/{key}", kind="user")
    *steps, end = source.read()
    assert isinstance(end, End)
    assert (len(steps), end.verdict, end.answered) == (2000, Verdict.COMPLETE, None)
    assert list(source.read(ReadRequest(since=end.cursor))) == [end._replace(answered=Answered.CHANGES)]


def test_an_object_that_changes_during_the_read_fails_it(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 30_000)
    put(server, "changing.csv", USERS)
    reading = object_source(server, "s3://bucket/changing.csv", kind="user").read()
    first = next(reading)
    put(server, "changing.csv", USERS.replace(b"Name", b"Eman"))
    *steps, end = reading
    assert isinstance(end, End)
    assert isinstance(first, Found)
    assert not any("Eman" in str(step) for step in steps)
    assert end.verdict is Verdict.FAILED
    assert end.reason.startswith("s3://bucket/changing.csv: was replaced while it was being read; the next read uses")


@pytest.mark.parametrize("path", ["s3://bucket/missing.csv", "s3://other/a.csv"])
def test_a_missing_object_fails_the_read(server: str, path: str) -> None:
    [end] = object_source(server, path, kind="user").read()
    assert isinstance(end, End)
    assert end.reason == f"{path}: does not exist; check the bucket and the key"
