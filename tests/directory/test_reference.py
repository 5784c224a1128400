"""The README lists the fields of every kind."""

import re
from pathlib import Path

import app.directory
from app.access.kinds import KINDS

README = Path(app.directory.__file__).parent / "README.md"


def test_reference_lists_the_fields_of_every_kind() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", README.read_text("utf-8"), re.MULTILINE)
    values = {"organizationPrivate", "editor", "*"}
    listed = {kind: set(re.findall(r"`([^`]+)`", text)) - values for kind, text in rows}
    assert listed == {name: set(kind.field_names) for name, kind in KINDS.items()}
