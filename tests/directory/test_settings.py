"""The settings of all kinds of sources, and their digests."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.commands.bootstrap.outgoing import spool_folder
from app.directory.bounded import BoundedSource
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.settings import Settings


def test_settings_name_sources_after_their_path() -> None:
    settings = DirectorySettings.model_validate(
        {"sources": [{"type": "file", "path": "a.yaml"}, {"type": "file", "path": "b.jsonl", "name": "people"}]}
    )
    assert [source.name for source in sources_from_settings(settings)] == ["a.yaml", "people"]


def test_there_is_no_default_source() -> None:
    assert DirectorySettings().sources == ()
    assert DirectorySettings().grace == 0


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({"sources": [{"type": "file", "path": "a"}, {"type": "file", "path": "b", "name": "a"}]}, "called 'a'"),
        ({"sources": [{"type": "file"}]}, "path"),
        ({"sources": [{"type": "file", "path": "a", "url": "x"}]}, "url"),
        ({"sources": [{"type": "csv", "path": "a", "encoding": "utf-9"}]}, "not an encoding; write utf-8-sig"),
        (
            {"sources": [{"type": "http", "name": "a", "base_url": "ftp://h", "preset": "okta"}]},
            "must be an http or https URL",
        ),
        ({"sources": [{"type": "carrier-pigeon", "path": "a"}]}, "type"),
        ({"sources": []}, "at least 1 item"),
        ({"sources": [{"type": "file", "path": ""}]}, "not the path of a file"),
        ({"sources": [{"type": "file", "path": "a.yaml", "require_end": True}]}, "require_end is for JSON Lines"),
        ({"sources": [{"type": "file", "path": "a\0.yaml"}]}, "not the path of a file"),
        ({"sources": [{"type": "file", "path": "a", "timeout": -1}]}, "timeout"),
        ({"sources": [{"type": "file", "path": "a", "guard": {"records": 5}}]}, "records"),
        ({"guard": {"count": -1}}, "guard.count"),
        ({"grace": -1}, "grace"),
        ({"sauces": []}, "sauces"),
    ],
)
def test_settings_refuse(section: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        DirectorySettings.model_validate(section)


def test_settings_without_effect_on_records_do_not_change_the_digest() -> None:
    def digest(**settings: object) -> str:
        [source] = DirectorySettings.model_validate({"sources": [{"type": "file", "path": "a", **settings}]}).sources
        return source.digest

    assert digest() == digest(name="b", timeout=5, poll=60, full_every=7, guard={"count": 1})
    assert digest() != digest(path="b")


def test_processes_compute_the_same_digest_of_settings_with_sets() -> None:
    program = """
from app.directory.settings import DirectorySettings
from app.directory.source_settings import SourceBase
csv = {"type": "csv", "path": "a", "kind": "grant", "null_is_absent": ["expiresAt", "accessType"]}
print(DirectorySettings.model_validate({"sources": [csv]}).sources[0].digest)
class PlugIn(SourceBase):
    words: set[str]
print(PlugIn(words={"one", "two", "three", "four"}).digest)
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "1234"
    }
    assert len(digests) == 1


def test_each_source_has_its_own_timeout_or_the_default() -> None:
    settings = DirectorySettings.model_validate(
        {"read_timeout": 7, "sources": [{"type": "file", "path": "a"}, {"type": "file", "path": "b", "timeout": 0}]}
    )
    sources = sources_from_settings(settings)
    assert [source.timeout for source in sources if isinstance(source, BoundedSource)] == [7, 0]


def test_the_spool_is_beside_the_database_or_as_configured() -> None:
    of = {"directory": {"sources": [{"type": "file", "path": "a"}]}}
    beside = Settings.model_validate(of | {"database_url": "sqlite:////srv/usher.db"})
    assert spool_folder(beside) == Path("/srv/usher.db-spool")
    away = Settings.model_validate(of | {"database_url": "postgresql+psycopg://usher@db/usher"})
    assert spool_folder(away).parent == Path(tempfile.gettempdir())
    settings = Settings.model_validate({"directory": {"spool": "/srv/spool"}})
    assert spool_folder(settings) == Path("/srv/spool")
