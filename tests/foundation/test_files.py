"""Files named in settings: pipes, devices and large files are refused without hanging."""

import os
from pathlib import Path

import pytest

from app.foundation.files import MAX_BYTES, read_small_file
from tests.commands.conftest import SETTINGS

ODD = ["fifo", "device", "large", "folder"]


def odd_file(sort: str, folder: Path) -> Path:
    path = folder / sort
    if sort == "fifo":
        os.mkfifo(path)
    elif sort == "device":
        path.symlink_to("/dev/zero")
    elif sort == "large":
        path.write_bytes(b"a" * (MAX_BYTES + 1))
    else:
        path.mkdir()
    return path


REASONS = {
    "fifo": "is not a regular file",
    "device": "is not a regular file",
    "large": "is larger than 1 MB",
    "folder": "Is a directory",
}


def test_a_file_of_a_megabyte_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a" * MAX_BYTES)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert len(read_small_file(tmp_path / "link")) == MAX_BYTES


def test_the_null_device_is_empty() -> None:
    assert read_small_file(Path(os.devnull)) == b""


@pytest.mark.timeout(20)
@pytest.mark.parametrize("sort", ODD)
def test_other_files_are_refused(sort: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=REASONS[sort]) as caught:
        read_small_file(odd_file(sort, tmp_path))
    assert caught.value.strerror == REASONS[sort]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sort", ODD)
@pytest.mark.parametrize(
    "settings",
    [
        "admin: {{tokens_file: {}}}",
        "backend: {{api_key_file: {}}}",
        "backend: {{ca_file: {}}}",
        "database_url_file: {}",
        "console: {{oidc: {{ca_file: {}}}}}",
        "notifications: {{email: {{ca_file: {}}}}}",
    ],
)
def test_settings_that_name_such_a_file_are_refused(
    sort: str, settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from app.cli import usher

    monkeypatch.chdir(tmp_path)
    path = odd_file(sort, tmp_path)
    base = "" if settings.startswith("database_url") else SETTINGS
    (tmp_path / "usher.yaml").write_text(f"{base}{settings.format(path)}\n")
    result = CliRunner().invoke(usher, ["config", "show", "--config", "usher.yaml"])
    assert result.exit_code != 0
    assert REASONS[sort] in result.stderr, result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sort", ODD)
def test_such_a_settings_file_is_refused(sort: str, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from app.cli import usher

    path = odd_file(sort, tmp_path)
    for environment, values in (({}, ["--config", str(path)]), ({"USHER_CONFIG": str(path)}, [])):
        result = CliRunner(env=environment).invoke(usher, ["config", "show", *values])
        assert result.exit_code != 0
        assert REASONS[sort] in result.stderr or "is a directory" in result.stderr, result.stderr


@pytest.mark.timeout(60)
@pytest.mark.parametrize("sort", ODD)
def test_the_key_of_the_self_hosted_backend(sort: str, tmp_path: Path) -> None:
    from random import Random

    from app.backend.security.secret_key import SecretKeyError
    from app.backend.security.vault import open_vault
    from app.backend.settings import SelfHostedBackendSettings

    settings = SelfHostedBackendSettings(secret_key_file=odd_file(sort, tmp_path))
    with pytest.raises(SecretKeyError, match=REASONS[sort]):
        open_vault(settings, Random(1))


@pytest.mark.timeout(20)
def test_the_doctor_does_not_wait_for_a_database_that_is_a_pipe(tmp_path: Path) -> None:
    from app.commands.doctor.database import open_database
    from app.commands.doctor.finding import State

    engine, finding = open_database(f"sqlite:///{odd_file('fifo', tmp_path)}")
    assert engine is None
    assert finding.state is State.PROBLEM


def test_a_spool_folder_is_no_link_and_closed_to_others(tmp_path: Path) -> None:
    from app.directory.mapping.spool import SpoolError
    from app.directory.mapping.spool_file import SpoolFile

    (tmp_path / "open").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(SpoolError, match="is a link"):
        SpoolFile.of(tmp_path / "link", "ad").create()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(SpoolError, match="is writable for others"):
        SpoolFile.of(tmp_path / "open", "ad").create()
    assert list((tmp_path / "open").iterdir()) == []
    # The file that was kept in a folder that became open is not used, either.
    (tmp_path / "open").chmod(0o700)
    kept = SpoolFile.of(tmp_path / "open", "ad")
    assert kept.path is not None
    kept.path.touch()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(SpoolError, match="is writable for others"):
        kept.open_kept("", "")


@pytest.mark.parametrize("open_file", ["usher.db", "usher.db-wal"])
def test_the_doctor_warns_of_a_database_that_others_can_read(open_file: str, tmp_path: Path) -> None:
    from app.commands.doctor.database import check_permissions

    for name in ("usher.db", "usher.db-wal"):
        (tmp_path / name).touch(0o600)
    url = f"sqlite:///{tmp_path}/usher.db"
    assert list(check_permissions(url, "database")) == []
    (tmp_path / open_file).chmod(0o666)
    [finding] = check_permissions(url, "database")
    assert finding.advice == f"chmod 600 {tmp_path / open_file}"
