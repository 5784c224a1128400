"""The wheel and the image's build context: they contain what they need, and no tests."""

import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest

import app

ROOT = Path(app.__file__).parent.parent


def files_of(folder: Path) -> set[str]:
    """The paths of a folder's files, relative to the repository."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (folder.rglob("*") if folder.is_dir() else [folder])
        if path.is_file() and "__pycache__" not in path.parts
    }


def is_ignored(path: str, patterns: list[str]) -> bool:
    """Whether .dockerignore leaves out a path. The last pattern that matches the path or a parent decides."""
    ignored = False
    candidates = [path, *(str(parent) for parent in PurePosixPath(path).parents)]
    for line in patterns:
        pattern = line.removeprefix("!").removeprefix("**/")
        whole = [c.rpartition("/")[2] for c in candidates] if "**/" in line else candidates
        if any(fnmatchcase(c, pattern) and c.count("/") == pattern.count("/") for c in whole):
            ignored = not line.startswith("!")
    return ignored


def copied() -> list[str]:
    """The sources of the Dockerfile's COPY lines that come from the build context."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    words = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from=" not in line]
    return sorted({source for line in words for source in line})


def test_dockerfile_copies_files() -> None:
    assert {"app", "pyproject.toml", "config/requirements.txt"} <= set(copied())


@pytest.mark.parametrize("source", copied())
def test_copied_files_are_in_the_build_context(source: str) -> None:
    patterns = (ROOT / ".dockerignore").read_text().split()
    assert (ROOT / source).exists()
    assert [path for path in sorted(files_of(ROOT / source)) if is_ignored(path, patterns)] == []


def test_image_has_all_extras_unless_named() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    # `embeddings` needs a package without its dependencies; `dev` and `testing` are for developers.
    assert (
        f"ARG EXTRAS={','.join(sorted(extras.keys() - {'dev', 'embeddings', 'testing'}))}\n"
        in (ROOT / "Dockerfile").read_text()
    )


def test_build_context_has_no_other_files() -> None:
    patterns = (ROOT / ".dockerignore").read_text().split()
    assert is_ignored("tests/conftest.py", patterns)
    assert is_ignored("config/usher.yaml", patterns)
    assert is_ignored("app/__pycache__/cli.cpython-311.pyc", patterns)


@pytest.mark.process
def test_wheel_contains_only_the_application(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as content:
        names = {name for name in content.namelist() if ".dist-info/" not in name}
        tests = [name for name in sorted(names) if b"def test_" in content.read(name)]
    # Plug-ins subclass the contract suite.
    assert tests == ["app/directory/testing/contract.py"]
    assert names == files_of(ROOT / "app") | {"app/commands/demo/directory.yaml"}
