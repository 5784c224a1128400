"""Child processes, and the output that is reported when they end."""

from pathlib import Path

import pytest

from app.foundation.processes import LAST_LINES, ChildEndedError, Children

pytestmark = pytest.mark.process


def ended(children: Children, *arguments: str, log: Path) -> ChildEndedError:
    """Runs ``usher`` with arguments that make it exit."""
    child = children.start("it", list(arguments), log=log)
    child.process.wait(60)
    with pytest.raises(ChildEndedError) as caught:
        children.check()
    children.end()
    return caught.value


def test_last_lines_are_those_of_this_process_and_not_of_an_earlier_one(tmp_path: Path) -> None:
    log = tmp_path / "it.log"
    children = Children()
    first = ended(children, "no-such-command", log=log)
    assert str(first) == "it ended with exit code 2"
    assert "no-such-command" in first.child.last_lines()[-1]
    second = ended(children, "another-one", log=log)
    assert "another-one" in second.child.last_lines()[-1]
    assert not any("no-such-command" in line for line in second.child.last_lines())
    assert "no-such-command" in log.read_text()


def test_last_lines_are_few_however_long_the_log_is(tmp_path: Path) -> None:
    log = tmp_path / "it.log"
    child = ended(Children(), "no-such-command", log=log).child
    with log.open("a") as more:
        more.writelines(f"line {number}\n" for number in range(50_000))
    assert child.last_lines() == [f"line {number}" for number in range(50_000 - LAST_LINES, 50_000)]


def test_a_log_that_is_gone_shows_nothing(tmp_path: Path) -> None:
    log = tmp_path / "it.log"
    child = ended(Children(), "no-such-command", log=log).child
    log.unlink()
    assert child.last_lines() == []


def test_children_do_not_import_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("app", "click", "json"):
        (tmp_path / package).mkdir()
        for name in ("__init__.py", "__main__.py"):
            (tmp_path / package / name).write_text("print('foreign code ran'); raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    log = tmp_path / "it.log"
    assert ended(Children(), "no-such-command", log=log).child.process.returncode == 2
    assert "foreign" not in log.read_text()
