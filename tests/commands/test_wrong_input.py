"""Wrong and hostile arguments end in one line."""

from pathlib import Path

import pytest

from tests.commands.conftest import Usher

LONG = "x" * 1_000_000
SHORTENED = f"'{'x' * 59}…"
HALF = "\udc80"
ID = "must be valid text without NUL of at most 512 bytes"
ASKED = ("document", "handbook", "--organization", "acme")
CONTEXT = ("ada", "context", "handbook", "--organization", "acme", "--context")
NOTHING = "directory.yaml has nothing"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["directory", "preview", LONG], 1, f"error: no source is called {SHORTENED}; there are: directory.yaml"),
        (["directory", "preview", HALF], 1, r"error: no source is called '\udc80'; there are: directory.yaml"),
        (["directory", "preview", ""], 1, "error: no source is called ''; there are: directory.yaml"),
        (["directory", "preview", "directory.yaml", "--id", LONG], 1, f"error: {NOTHING} with the id {SHORTENED}"),
        (["directory", "preview", "directory.yaml", "--id", HALF], 1, rf"error: {NOTHING} with the id '\udc80'"),
        (["directory", "preview", "directory.yaml", "--set", "users"], 1, f"error: {NOTHING} in the set 'users'"),
        (
            ["directory", "preview", "directory.yaml", "--set", "\n", "--id", "\x1b"],
            1,
            rf"error: {NOTHING} with the id '\x1b' in the set '\n'",
        ),
        (
            ["directory", "preview", "directory.yaml", "--limit", "-1"],
            2,
            "Error: Invalid value for '--limit': -1 is not in the range 1<=x<=1000.",
        ),
        (
            ["directory", "forget", LONG],
            1,
            f"error: nothing is in force of a source called {SHORTENED}; no longer configured: none",
        ),
        (["check", LONG, *ASKED, "--explain"], 1, f"error: userId: {ID}"),
        (["check", HALF, *ASKED, "--explain", "--json"], 1, f"error: userId: {ID}"),
        (["check", "", *ASKED], 1, "error: userId: must not be empty"),
        (["check", "ada", "document", LONG, "--organization", "acme"], 1, f"error: resource.id: {ID}"),
        (
            ["check", "ada", "document", "x", "--organization", HALF, "--json"],
            1,
            f"error: resource.organizationId: {ID}",
        ),
        (
            ["check", *CONTEXT, f"f={HALF}"],
            1,
            "error: resource.context.access: holds text that is empty, too long or not valid",
        ),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_wrong_input_is_one_line(usher_read: Usher, arguments: list[str], code: int, message: str) -> None:
    result = usher_read(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    output = [line for line in result.stderr.splitlines() if line != "reading"]
    assert output[-1] == message
    # Wrong usage comes with how it is used.
    assert code == 2 or len(output) == 1


def test_push_sources_cannot_be_previewed(usher_read: Usher, folder: Path) -> None:
    with (folder / "usher.yaml").open("a") as settings:
        settings.write("    - {type: push, name: app, changes: {tokens: [0123456789abcdef0123456789abcdef]}}\n")
    result = usher_read("directory", "preview", "app")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "error: source app only receives pushes; usher check --explain shows the push of a record\n"
    )


def test_unreadable_source_is_one_line_in_each_command(usher_read: Usher, folder: Path) -> None:
    (folder / "directory.yaml").unlink()
    (folder / "directory.yaml").mkdir()
    for command, code in ((["directory", "preview", "directory.yaml"], 1), (["directory", "refresh", "--full"], 3)):
        result = usher_read(*command)
        assert result.exit_code == code
        assert "Traceback" not in result.output
        assert "directory.yaml: is a folder" in result.output
