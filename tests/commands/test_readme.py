"""Commands, links and paths in the documents exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

import app
from app.cli import usher
from app.monitoring.notify.concerns import Cause

ROOT = Path(app.__file__).parent.parent
_FOLDERS = ("app", "config", "tests")
TEXTS = sorted(
    {*ROOT.glob("*.md"), *(text for folder in _FOLDERS for text in (ROOT / folder).rglob("*.md"))}
    - {ROOT / "CHANGELOG.md"}  # which names removed commands
)
_FLOWING = re.compile(r"`(usher [^`]*)`")
_LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CONSOLE = re.compile(r"^ *\$ (usher [^#\n]*)", re.MULTILINE)


def documented_commands() -> list[str]:
    found = {match for text in TEXTS for pattern in (_FLOWING, _CONSOLE) for match in pattern.findall(text.read_text())}
    return sorted(command.strip() for command in found)


def test_documents_contain_the_commands_of_the_setup() -> None:
    commands = {" ".join(command.split()[:3]) for command in documented_commands()}
    assert {"usher backend bootstrap", "usher backend upgrade", "usher provider register", "usher doctor"} <= commands


@pytest.mark.parametrize("line", documented_commands())
def test_documented_commands_exist(line: str) -> None:
    command: click.Command = usher
    context = click.Context(usher, info_name="usher")
    words = shlex.split(line)[1:]
    while words and isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"{words[0]} is no command of {command.name}"
        command, context = found, click.Context(found, info_name=words.pop(0), parent=context)
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("--"):
            assert word.split("=")[0] in known | {"--help", "--version"}, line


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    found = {match for text in TEXTS for match in re.findall(r"(?:`|\$ )make ([a-z-]+)", text.read_text())}
    assert len(found) > 10
    assert found - targets == set()


def _anchors(text: str) -> set[str]:
    """The anchors of a page's headings."""
    headings = [match.replace("`", "").strip().lower() for match in _HEADING.findall(text)]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text.relative_to(ROOT)))
def test_links_lead_to_existing_pages_and_sections(text: Path) -> None:
    for place, section in _LINK.findall(text.read_text()):
        if "://" in place:
            continue
        page = (text.parent / place).resolve() if place else text
        assert page.exists(), place
        assert not section or section in _anchors(page.read_text()), f"{place}#{section}"


def test_readme_of_tests_lists_every_folder() -> None:
    section = (ROOT / "tests" / "README.md").read_text().split("\n## Folders\n")[1].split("\n## ")[0]
    output = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    there = {place.parent.relative_to(ROOT / "tests").parts for place in (ROOT / "tests").rglob("*.py")}
    assert sorted(output) == sorted({parts[0] for parts in there if parts})


def test_causes_are_documented() -> None:
    section = (ROOT / "config" / "OPERATING.md").read_text().split("\n## What needs attention\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [cause.value for cause in Cause]


_PLACE = re.compile(r"`((?:app|config|tests)/[\w./-]*)`")


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: str(text.relative_to(ROOT)))
def test_named_paths_exist(text: Path) -> None:
    assert [place for place in _PLACE.findall(text.read_text()) if not (ROOT / place).exists()] == []
