"""The index of ``usher serve``."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from app.access.index.index import AccessIndex
from app.access.index.settings import IndexSettings
from app.commands.bootstrap import service
from app.directory.settings import DirectorySettings
from app.settings import Settings


@pytest.mark.parametrize(
    ("max_staleness", "max_age", "effective"), [(0, 0, 0), (0, 3_600, 3_600), (60, 3_600, 60), (60, 0, 60)]
)
def test_maximum_age_of_the_directory_is_the_default_of_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_staleness: float, max_age: int, effective: float
) -> None:
    created = Mock(wraps=AccessIndex)
    monkeypatch.setattr(service, "AccessIndex", created)
    # The threads of a service, and its hooks, last as long as its process.
    monkeypatch.setattr(service, "Thread", Mock())
    monkeypatch.setattr(service, "record_crashes", Mock())
    settings = Settings(
        database_url=f"sqlite:///{tmp_path}/usher.db",
        index=IndexSettings(max_staleness=max_staleness),
        directory=DirectorySettings(max_age=max_age),
    )
    service.open_service(settings)
    assert created.call_args.kwargs["max_staleness"] == effective
