"""Objects in object stores as sources: the contract suite, versions, and stores that misbehave."""

import gzip
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.commands.schema import METADATA
from app.directory.configured import source_from_settings, sources_from_settings
from app.directory.connectors.objects import stored
from app.directory.settings import CsvSourceSettings, DirectorySettings, FileSourceSettings
from app.directory.source import Answered, End, Found, ReadRequest, Source, Verdict
from app.directory.testing.contract import SourceContract
from app.directory.testing.world import Content, SourceWorld, read
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.sync.runs.directory_reads import ReadOptions, read_directory
from tests.directory.object_store import ObjectStore, running_store
from tests.directory.test_contract import FileWorld
from tests.worlds.faulty_reads import FaultyReads, in_force

SECRET = "topsecret-key"
USERS = b"userId,name,email\n" + b"".join(b"p%04d,Name,p%04d@acme.example\n" % (n, n) for n in range(2000))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AWS_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with running_store() as running:
        yield running


def object_source(running: ObjectStore, url: str = "s3://bucket/people.csv", **settings: Any) -> Source:
    given: dict[str, Any] = {"type": "csv", "kind": "user", "path": url, **settings}
    given["store"] = {"endpoint": running.url, "connect_timeout": 1, "answer_timeout": 0.7} | settings.get("store", {})
    return source_from_settings(CsvSourceSettings.model_validate(given))


def end_of(source: Source) -> End:
    end = read(source)[-1]
    assert isinstance(end, End)
    return end


class ObjectWorld(SourceWorld):
    """An archive of JSON Lines in a bucket."""

    secret = SECRET

    def __init__(self, store: ObjectStore, folder: Path) -> None:
        self._store = store
        self._files = FileWorld(folder)
        self._file = folder / "people.jsonl.gz"

    def source(self, name: str = "people.jsonl.gz", **store: Any) -> Source:
        given = {"endpoint": self._store.url, "connect_timeout": 1, "answer_timeout": 0.7} | store
        settings = {"type": "file", "path": f"s3://bucket/{name}", "name": "people", "store": given}
        return source_from_settings(FileSourceSettings.model_validate(settings))

    def set_content(self, content: Content) -> None:
        self._files.set_content(content)
        self._put()

    @contextmanager
    def cut(self, share: float) -> Iterator[None]:
        self._store.cut = share
        yield
        self._store.cut = None

    def add_unusable(self, person_id: str, text: str) -> None:
        self._files.add_unusable(person_id, text)
        self._put()

    def add_nested(self, person_id: str, depth: int) -> None:
        self._files.add_nested(person_id, depth)
        self._put()

    def failures(self) -> Mapping[str, AbstractContextManager[Source]]:
        @contextmanager
        def of(fault: str, name: str = "people.jsonl.gz", **store: Any) -> Iterator[Source]:
            self._store.fault = fault
            yield self.source(name, **store)
            self._store.fault = ""

        faults = ("hang", "html", "no etag", "drip", "all of it", "400", "401", "403", "404", "500")
        return {fault: of(fault) for fault in faults} | {
            "missing": of("", "missing.jsonl"),
            "nothing listens": of("", endpoint="http://127.0.0.1:1"),
            "no TLS": of("", endpoint=self._store.url.replace("http:", "https:")),
        }

    def _put(self) -> None:
        self._store.objects["/bucket/people.jsonl.gz"] = self._file.read_bytes()


class TestObjects(FaultyReads, SourceContract):
    @pytest.fixture
    def world(self, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectWorld:
        monkeypatch.setattr(stored, "_MAX_RETRIES", 0)
        return ObjectWorld(store, tmp_path)


def test_an_object_is_read_in_parts_of_one_version(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "PART_BYTES", 10_000)
    store.objects["/bucket/people.csv"] = USERS
    steps = read(object_source(store))
    assert len(steps) == 2001
    assert steps[-1] == End(Verdict.COMPLETE, "", store.etag("/bucket/people.csv"))
    assert isinstance(steps[7], Found)
    assert steps[7].place == "s3://bucket/people.csv:9"
    assert store.requests[0] == "HEAD /bucket/people.csv"
    assert store.requests[1:3] == [f"GET /bucket/people.csv bytes={at}-{at + 9_999}" for at in (0, 10_000)]
    assert len(store.requests) == 1 + -(-len(USERS) // 10_000)


@pytest.mark.parametrize("honours_conditions", [True, False])
@pytest.mark.parametrize("name", ["people.csv", "people.csv.gz"])
def test_an_object_that_changes_during_the_read_fails_it(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, name: str, honours_conditions: bool
) -> None:
    def packed(content: bytes) -> bytes:
        return gzip.compress(content) if name.endswith("gz") else content

    monkeypatch.setattr(stored, "PART_BYTES", 3_000)
    store.honours_conditions = honours_conditions
    store.objects[f"/bucket/{name}"] = packed(USERS)
    store.on_get = lambda: store.objects.update({f"/bucket/{name}": packed(USERS.replace(b"Name", b"Eman"))})
    *steps, end = read(object_source(store, f"s3://bucket/{name}"))
    assert isinstance(end, End)
    assert (end.verdict, end.cursor) == (Verdict.FAILED, "")
    assert "was replaced while it was being read" in end.reason
    assert not any("Eman" in str(step) for step in steps)
    store.on_get = lambda: None
    assert end_of(object_source(store, f"s3://bucket/{name}")).verdict is Verdict.COMPLETE


def test_an_object_is_skipped_while_its_etag_is_unchanged(store: ObjectStore, tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/usher.db")
    METADATA.create_all(engine)
    store.objects["/bucket/people.csv"] = USERS
    settings = {
        "type": "csv",
        "kind": "user",
        "name": "people",
        "path": "s3://bucket/people.csv",
        "store": {"endpoint": store.url},
    }

    def run(full: tuple[str, ...] = (), **more: object) -> tuple[list[str], str, int]:
        store.requests.clear()
        directory = DirectorySettings.model_validate({"sources": [settings | more]})
        [source] = read_directory(
            engine, sources_from_settings(directory), ReadOptions(full=full), clock=utc_now
        ).sources
        assert source.verdict is Verdict.COMPLETE, source.reason
        return [line.split()[0] for line in store.requests], source.answered, len(in_force(engine).people)

    head = ["HEAD"]
    whole = ["HEAD", "GET", "HEAD"]
    """The last request is for what changed meanwhile."""
    assert run() == (whole, "", 2000)
    for _ in range(2):
        assert run() == (head, "changes", 2000)
    assert run(full=("people",)) == (whole, "", 2000)
    assert run(full_every=0) == (whole, "", 2000)
    assert run(null_is_absent=["expiresAt"]) == (whole, "", 2000)
    store.objects["/bucket/people.csv"] = USERS + b"new,New,new@acme.example\n"
    assert run(null_is_absent=["expiresAt"]) == (whole, "", 2001)
    engine.dispose()


def test_a_partial_read_has_no_cursor(store: ObjectStore) -> None:
    store.objects["/bucket/people.csv"] = USERS + b"too,few\n"
    end = end_of(object_source(store))
    assert (end.verdict, end.cursor) == (Verdict.PARTIAL, "")
    # Its key identifies the malformed row, so that everything else is known.
    store.objects["/bucket/people.csv"] = USERS.replace(b"\n", b",\n").replace(b"email,", b"email,disabled")
    end = end_of(object_source(store))
    assert (end.verdict, end.except_malformed) == (Verdict.PARTIAL, True)
    assert end.cursor == store.etag("/bucket/people.csv")


def test_rules_make_records_of_the_rows_of_an_object(store: ObjectStore) -> None:
    store.objects["/bucket/people.csv"] = USERS
    rules = [{"from": "rows", "user": {"userId": "it.userId", "name": "it.name", "email": "it.email"}}]
    source = object_source(store, kind=None, key=["userId"], map=rules)
    *steps, end = read(source)
    assert isinstance(end, End)
    assert (len(steps), end) == (2000, End(Verdict.COMPLETE, "", store.etag("/bucket/people.csv")))
    assert read(source, ReadRequest(since=end.cursor)) == [end._replace(answered=Answered.CHANGES)]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("hang", "{store}: a response took longer than answer_timeout; check store.endpoint and the store"),
        ("drip", "{store}: a response took longer than answer_timeout; check store.endpoint and the store"),
        ("html", "{store} does not answer as an object store does; check store.endpoint"),
        ("no etag", "{store} does not answer as an object store does; check store.endpoint"),
        ("all of it", "{store} returned all of it instead of a part; store it without Content-Encoding"),
        ("404", "does not exist; check the bucket and the key"),
        ("301", "{store}: set store.region to the region of the bucket"),
        ("400", "{store} answers with 400"),
        ("503", "{store} answers with 503"),
        (
            "403",
            "{store} refuses access: let AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY be of an account that may read",
        ),
    ],
)
def test_a_store_that_misbehaves_fails_the_read_in_one_line(store: ObjectStore, fault: str, reason: str) -> None:
    store.objects["/bucket/people.csv"] = USERS
    store.fault = fault
    address = store.url.removeprefix("http://")
    end = end_of(object_source(store))
    assert end.verdict is Verdict.FAILED
    assert end.reason.startswith(f"s3://bucket/people.csv: {reason.format(store=address)}")
    assert len(store.requests) <= 6


def test_a_lost_connection_is_retried(store: ObjectStore) -> None:
    store.objects["/bucket/people.csv"] = USERS
    store.cut = 0.5
    store.on_get = lambda: setattr(store, "cut", None)
    assert end_of(object_source(store)).verdict is Verdict.COMPLETE
    store.cut, store.on_get = 0.5, lambda: None
    assert "was lost, and several retries failed" in end_of(object_source(store)).reason


@pytest.mark.parametrize(
    ("scheme", "environment"),
    [
        ("gs", {"GOOGLE_SKIP_SIGNATURE": "true"}),
        ("az", {"AZURE_STORAGE_ACCOUNT_NAME": "acme", "AZURE_STORAGE_ACCOUNT_KEY": "c2VjcmV0"}),
    ],
)
def test_google_and_azure_are_read_in_the_same_way(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, scheme: str, environment: Mapping[str, str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    store.objects["/bucket/people"] = USERS
    source = object_source(store, f"{scheme}://bucket/people")
    *steps, end = read(source)
    assert isinstance(end, End)
    assert (len(steps), end) == (2000, End(Verdict.COMPLETE, "", store.etag("/bucket/people")))
    assert read(source, ReadRequest(since=end.cursor)) == [end._replace(answered=Answered.CHANGES)]


@pytest.mark.parametrize(
    ("environment", "url", "reason"),
    [
        ({"AWS_ENDPOINT_URL": "http://192.0.2.1"}, "s3://bucket/a.csv", "the environment names a store without TLS"),
        ({"AWS_ENDPOINT_URL": "http://192.0.2.1", "AWS_ALLOW_HTTP": "true"}, "s3://bucket/a.csv", "without TLS"),
        (
            {"AWS_ACCESS_KEY_ID": "AKIA\n"},
            "s3://bucket/a.csv",
            "there are no usable credentials: set AWS_ACCESS_KEY_ID",
        ),
        ({"GOOGLE_APPLICATION_CREDENTIALS": "/missing"}, "gs://bucket/a.csv", "set GOOGLE_APPLICATION_CREDENTIALS"),
        ({}, "az://container/a.csv", "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or give this"),
    ],
)
def test_an_unusable_environment_fails_the_read_in_one_line(
    monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str], url: str, reason: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = CsvSourceSettings.model_validate({"type": "csv", "path": url, "kind": "user"})
    end = end_of(source_from_settings(settings))
    assert reason in end.reason
    assert "\n" not in end.reason
    assert SECRET not in end.reason


def test_the_configured_store_has_precedence_over_the_environment(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    store.objects["/bucket/people.csv"] = USERS
    assert end_of(object_source(store)).verdict is Verdict.COMPLETE


def test_a_missing_library_fails_the_read_with_its_extra(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    end = end_of(object_source(store))
    assert end.reason == (
        "s3://bucket/people.csv: the library for object stores is not installed: pip install 'usher[objects]' adds it"
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"path": "http://h/people.csv"}, "should be a path, or the URL of an object, which begins with s3://, gs://"),
        (
            {"path": "s3://bucket"},
            "not the URL of an object; write s3://BUCKET/KEY, gs://BUCKET/KEY or az://CONTAINER/",
        ),
        ({"path": "s3://bucket/folder/"}, "not the URL of an object"),
        ({"path": "s3://bucket/a/../b.csv"}, "not the URL of an object"),
        ({"path": "s3://bucket/a\tb.csv"}, "not the URL of an object"),
        ({"path": "s3://AKIA:hunter2@bucket/a.csv"}, "should hold no user and no query; credentials come from the env"),
        ({"path": "az://c/a.csv?sig=hunter2"}, "should hold no user and no query"),
        ({"path": "a.csv", "store": {}}, "store is for objects, whose path begins with s3://, gs:// or az://"),
        ({"store": {"endpoint": "ftp://h"}}, "must be an http or https URL, such as https://HOST"),
        (
            {"store": {"endpoint": "https://a:hunter2@h"}},
            "must not contain a user name or password; credentials come",
        ),
        ({"store": {"endpoint": "http://minio.example"}}, "endpoint: without TLS, records could be read and changed"),
        ({"store": {"region": "a\nb"}}, "region"),
        ({"store": {"secret": "hunter2"}}, "secret"),
    ],
)
def test_settings_are_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError) as refused:
        CsvSourceSettings.model_validate({"type": "csv", "path": "s3://b1/a.csv", "kind": "user", **settings})
    [error] = refused.value.errors()
    assert reason in f"{error['loc']} {error['msg']}"
    assert "hunter2" not in error["msg"]


def test_settings_with_a_url() -> None:
    settings = FileSourceSettings.model_validate(
        {
            "type": "file",
            "path": "s3://bucket/a b/ü#1.JSONL.gz",
            "require_end": True,
            "store": {"endpoint": "http://minio.example/", "allow_plaintext": True, "region": "eu-central-1"},
        }
    )
    assert settings.source_name == settings.path == "s3://bucket/a b/ü#1.JSONL.gz"
    assert settings.model_dump(mode="json")["path"] == settings.path
    assert settings.store is not None
    assert settings.store.endpoint == "http://minio.example"
    assert settings.digest != settings.model_copy(update={"path": "s3://bucket/b.jsonl"}).digest
