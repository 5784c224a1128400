"""The doctor's checks of the index and of the decision log."""

import os
from pathlib import Path

import pytest

from app.commands.doctor.files import check_files
from app.commands.doctor.finding import State
from app.settings import Settings

pytestmark = pytest.mark.one_database


def found(folder: Path, *, index: str = "", log: str = "", mounts: str = "") -> list[tuple[State, str, str]]:
    table = folder / "mounts"
    table.write_text(mounts)
    settings = Settings.model_validate(
        {
            "database_url": f"sqlite:///{folder}/usher.db",
            "index": {"path": index and str(folder / index)},
            "provider": {"decision_log": {"path": log if log in {"", "-"} else str(folder / log)}},
        }
    )
    return [(finding.state, finding.name, finding.message) for finding in check_files(settings, mounts=table)]


def test_a_new_installation(tmp_path: Path) -> None:
    [(state, name, message)] = found(tmp_path, log="-")
    assert (state, name) == (State.OK, "index")
    assert message.startswith(f"usher serve creates {tmp_path}/usher.db-index/")
    assert list(tmp_path.iterdir()) == [tmp_path / "mounts"]


@pytest.mark.parametrize(
    ("mounts", "kind"),
    [
        ("srv:/x {folder} nfs4 rw 0 0", "nfs4"),
        ("/dev/sda / ext4 rw 0 0\nsrv:/x {folder}/a cifs rw 0 0", "cifs"),
        ("srv:/x / nfs rw 0 0\n/dev/sda {folder}/a ext4 rw 0 0", ""),
        ("srv:/x {folder}/abc nfs rw 0 0", ""),
        ("nothing", ""),
    ],
)
def test_network_file_systems_are_refused(tmp_path: Path, mounts: str, kind: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "abc").mkdir()
    [(state, _, message)] = found(tmp_path, index="a/index", mounts=mounts.format(folder=tmp_path.resolve()))
    assert (state, f"network file system ({kind})" in message) == (State.PROBLEM if kind else State.OK, bool(kind))


def test_paths_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    index, log = found(tmp_path, index="file/index", log="file/decisions")
    assert index[0] is log[0] is State.PROBLEM
    assert f"{tmp_path}/file is not a directory" in index[2]
    assert f"{tmp_path}/file is not a directory" in log[2]
    (tmp_path / "folder").mkdir()
    assert found(tmp_path, log="folder")[1] == (State.PROBLEM, "decision log", f"{tmp_path}/folder is a directory")
    assert found(tmp_path, log="new/decisions")[1] == (State.OK, "decision log", f"{tmp_path}/new/decisions")


@pytest.mark.parametrize(("free", "state"), [(1000, State.PROBLEM), (1000**2 * 500, State.WARNING)])
def test_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: State) -> None:
    monkeypatch.setattr("app.foundation.database.errors.free_bytes", lambda _path: free)
    assert [each[0] for each in found(tmp_path, log="decisions")] == [state, state]


def test_paths_without_the_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    index, log = found(tmp_path, log="decisions")
    assert index[0] is log[0] is State.PROBLEM
    assert "cannot be written to" in index[2]
    assert "cannot be written to" in log[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the rights of another user")
def test_paths_below_a_folder_of_another_user(tmp_path: Path) -> None:
    private = tmp_path / "private"
    (private / "index").mkdir(parents=True)
    private.chmod(0o700)
    settings = Settings.model_validate(
        {
            "database_url": "postgresql+psycopg://nobody@127.0.0.1/none",
            "index": {"path": private / "index"},
            "provider": {"decision_log": {"path": str(private / "index" / "decisions")}},
        }
    )
    os.setresuid(65534, 65534, 0)
    try:
        findings = list(check_files(settings))
    finally:
        os.setresuid(0, 0, 0)
    assert [finding.state for finding in findings] == [State.PROBLEM, State.PROBLEM]
    assert all("cannot be written to" in finding.message for finding in findings)
