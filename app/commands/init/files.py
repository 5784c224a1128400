"""Writes the files of ``usher init`` from templates."""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.commands.frame import CommandError
from app.commands.init.questions import FOLDER
from app.foundation.configuration.problems import ConfigurationError
from app.foundation.files import make_folder, write_file
from app.settings import load_settings


class Files:
    """The files of one set of settings: ``output``, and beside it the organization and a folder of secrets."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self._secrets = output.parent / "secrets"
        self._organization = output.parent / "organization.yaml"

    def secret(self, name: str) -> Path:
        return self._secrets / name

    def require_absent(self, names: Iterable[str] = ()) -> None:
        """Raises ``CommandError`` if a file exists that would be written. ``names``: those of the secrets."""
        if "?" in str(self.output.parent):
            raise CommandError(f"{self.output.parent}: the address of a database cannot contain a question mark")
        for path in (self.output, self._organization, *map(self.secret, names)):
            if path.exists() or path.is_symlink():
                raise CommandError(f"{path} exists, and is not replaced; name another folder with --output")

    def write(
        self, directory: str, backend: str, values: Mapping[str, str], secret_values: Mapping[str, str]
    ) -> list[Path]:
        """Writes the files, readable for their owner only, and returns their paths. Raises ``ConfigurationError`` and
        ``OSError``, and leaves no file or folder, if the settings are not usable."""
        context = {**self._context(directory, backend), **values}
        texts = {self.secret(name): f"{value}\n" for name, value in secret_values.items()}
        texts[self._organization] = _rendered("organization.yaml", _quoted, context)
        texts[self.output] = _rendered("usher.yaml", _quoted, context)
        missing = [folder for folder in (self._secrets, *self._secrets.parents) if not folder.exists()]
        try:
            make_folder(self._secrets)
            for path, text in texts.items():
                write_file(path, text)
            load_settings(self.output, environment={})
        except (ConfigurationError, OSError):
            for remove in (*(path.unlink for path in texts), *(folder.rmdir for folder in missing)):
                with suppress(OSError):
                    remove()
            raise
        return list(texts)

    def next_steps(self, directory: str, backend: str) -> str:
        return _rendered(f"next/{backend}.txt", shlex.quote, self._context(directory, backend))

    def _context(self, directory: str, backend: str) -> dict[str, str]:
        return {
            "directory": directory,
            "backend": backend,
            "output": str(self.output),
            "folder": str(self.output.parent),
            "organization_file": str(self._organization),
        }


def _rendered(name: str, quoted: Callable[[str], str], context: Mapping[str, str]) -> str:
    """A template with these values, each of which ``quoted`` makes a literal of the language."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        undefined=StrictUndefined,
        finalize=quoted,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - not HTML
    )
    # A constant in an expression of a rule.
    environment.globals["constant"] = lambda text: f"'{text}'"
    return environment.get_template(name).render(context)


def _quoted(text: str) -> str:
    """The text as a JSON string, which YAML reads as the same text."""
    return json.dumps(text, ensure_ascii=False)
