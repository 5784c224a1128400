"""The contract suite of Usher for this plug-in."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from app.directory.testing import Content, SourceContract, SourceWorld, UnsupportedError, source_of

RULES = [
    {"from": "people", "user": {"userId": "it.id", "name": "it.name", "email": "it.mail"}},
    {"from": "badges", "membership": {"organizationId": "it.team", "userId": "it.person"}},
]


class BadgeWorld(SourceWorld):
    """An export in a folder of the test."""

    def __init__(self, folder):
        self._path = folder / "export.txt"

    def source(self, path=None):
        return source_of({"type": "badges", "name": "badges", "path": str(path or self._path), "map": RULES})

    def set_content(self, content: Content) -> None:
        self._lines = [f"person\t{one}\t{person.name}\t{person.email}\n" for one, person in content.people.items()]
        self._lines += [f"badge\t{one}\t{team}\n" for team, some in content.teams.items() for one in sorted(some)]
        self._write()

    @contextmanager
    def cut(self, share: float) -> Iterator[None]:
        whole = self._path.read_bytes()
        self._path.write_bytes(whole[: int(len(whole) * share)])
        yield
        self._path.write_bytes(whole)

    def add_unusable(self, person_id: str, text: str) -> None:
        if not text.isascii():
            raise UnsupportedError("no bytes of UTF-8 are half a surrogate pair")
        self._lines.insert(3, f"person\t{person_id}\t{text}\t-\n")
        self._write()

    def failures(self):
        other = self._path.with_name("other.txt")
        other.write_bytes(b"\xff\n")
        missing = self._path.with_name("missing.txt")
        return {path.name: nullcontext(self.source(path)) for path in (missing, other, self._path.parent)}

    def _write(self) -> None:
        text = "".join(self._lines) + f"end\t{len(self._lines)}\n"
        self._path.write_text(text, encoding="utf-8", newline="\n")


class TestBadges(SourceContract):
    many = 2_000

    @pytest.fixture
    def world(self, tmp_path):
        return BadgeWorld(tmp_path)
