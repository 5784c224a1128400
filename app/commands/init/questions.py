"""Reads the questions of ``usher init`` from ``questions.yaml``, and checks answers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class InitQuestion:
    """A question. Its answer is a value of the templates."""

    name: str
    prompt: str = ""
    example: str = ""
    default: str | None = None
    pattern: str = r".+"
    secret: bool = False
    """Whether it is asked without echo. A file contains the answer, and the templates get its path as ``key``."""
    generated: bool = False
    """Whether a new token is the answer. A file contains it, and the templates get its path as ``key``."""
    path: bool = False
    """Whether the answer is the path of a file."""
    optional: bool = False
    """Whether the default is used without asking."""

    @property
    def has_file(self) -> bool:
        return self.secret or self.generated

    @property
    def key(self) -> str:
        """The name of the value: that of the question, or the same with ``_file``."""
        return f"{self.name}_file" if self.has_file else self.name

    @property
    def hint(self) -> str:
        """What the answer is, with an example."""
        return f"{self.prompt}, such as {self.example}" if self.example else self.prompt

    def checked(self, answer: str) -> str:
        """The answer, without blanks at its ends. Raises ``UsageError``, whose message does not contain it."""
        text = answer.strip()
        if not text.isprintable() or (text != self.default and not re.fullmatch(self.pattern, text)):
            raise click.UsageError(f"{self.name} is not usable; expected: {self.hint}")
        return absolute(text) if self.path and "://" not in text else text


def absolute(path: str) -> str:
    """The absolute path, so that the settings mean the same in every working directory."""
    return str(Path(path).expanduser().absolute())


def read_choices() -> Mapping[str, Any]:
    """``directories`` and ``backends``, which map kinds to their title and questions, and the ``common`` questions."""
    choices: Mapping[str, Any] = yaml.safe_load((FOLDER / "questions.yaml").read_text("utf-8"))
    return choices


def questions_of(choices: Mapping[str, Any], directory: str, backend: str) -> list[InitQuestion]:
    parts = (choices["directories"][directory]["questions"], choices["backends"][backend]["questions"])
    return [InitQuestion(name, **fields) for part in (*parts, choices["common"]) for name, fields in part.items()]
