"""``usher init``: asks for the directory and the backend, writes the first settings file, and checks the directory."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.commands.frame import Invocation, UsherCommand, pass_invocation
from app.commands.screen import print_note, print_result

if TYPE_CHECKING:
    from app.commands.init.questions import InitQuestion


@click.command(cls=UsherCommand)
@click.option("--directory", metavar="KIND", help="The kind of directory, such as keycloak. Default: asked.")
@click.option("--backend", metavar="KIND", help="The backend: hosted or self_hosted. Default: asked.")
@click.option(
    "--set",
    "pairs",
    metavar="NAME=VALUE",
    multiple=True,
    help="Answer a question; repeatable. NAME_file=FILE names the file of a secret.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    default="usher.yaml",
    show_default=True,
    help="The settings file to write.",
)
@pass_invocation
@click.pass_context
def init(  # noqa: PLR0917 - click passes them by name
    context: click.Context,
    invocation: Invocation,
    directory: str | None,
    backend: str | None,
    pairs: tuple[str, ...],
    output: Path,
) -> None:
    """Write a first settings file, and check the directory.

    Asks which directory and which backend there is, and for their addresses and secrets. Writes the settings, and each
    secret to a file of its own beside them, readable for their owner only. Existing files are never replaced. Without a
    terminal, nothing is asked: an error names the missing options.

    Exit code 0: the directory has no problems, 1: problems.
    """
    from app.commands.bootstrap.databases import open_store
    from app.commands.directory import check
    from app.commands.init.files import Files
    from app.commands.init.questions import absolute, questions_of, read_choices

    choices = read_choices()
    files = Files(Path(absolute(str(output))))
    files.require_absent()
    directory = _choose("directory", directory, choices["directories"])
    backend = _choose("backend", backend, choices["backends"])
    questions = {question.key: question for question in questions_of(choices, directory, backend)}
    values = _from_pairs(pairs, questions)
    open_questions = [question for key, question in questions.items() if key not in values]
    secret_names = [question.name for question in open_questions if question.has_file]
    files.require_absent(secret_names)
    answers = _ask(open_questions)
    for question in open_questions:
        values[question.key] = str(files.secret(question.name)) if question.has_file else answers[question.name]
    for path in files.write(directory, backend, values, {name: answers[name] for name in secret_names}):
        print_note(f"wrote {path}")
    invocation.config = files.output
    # Creates the database, because the check reads from it what directories push by SCIM.
    open_store(invocation.settings()).dispose()
    try:
        context.invoke(check, limit=50, as_json=False)
    finally:
        print_result(files.next_steps(directory, backend).rstrip())


def _choose(what: str, kind: str | None, kinds: Mapping[str, Any]) -> str:
    """The kind of the option, or that the user chooses by number."""
    if kind is None and _on_terminal():
        for number, choice in enumerate(kinds.values(), 1):
            click.echo(f"{number:>3}  {choice['title']}", err=True)
        number = click.prompt(f"Which {what}?", type=click.IntRange(1, len(kinds)), err=True)
        return list(kinds)[number - 1]
    if kind is None or kind not in kinds:
        choices = "\n".join(f"  {name:<18}{choice['title']}" for name, choice in kinds.items())
        problem = "is missing" if kind is None else "is none of the kinds"
        raise click.UsageError(f"--{what}: {problem}; choose one of:\n{choices}")
    return kind


def _from_pairs(pairs: Iterable[str], questions: Mapping[str, InitQuestion]) -> dict[str, str]:
    """The answers from the command line: key → value. Errors contain no value, because it may be a secret."""
    from app.commands.init.questions import absolute

    values = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or key not in questions:
            raise click.UsageError(f"--set {key}: is not known here; there are {', '.join(questions)}")
        question = questions[key]
        values[key] = question.checked(value) if key == question.name else absolute(value)
    return values


def _ask(questions: Iterable[InitQuestion]) -> dict[str, str]:
    """The answers of the user, by the names of the questions, and new tokens. Without a terminal, the defaults."""
    answers: dict[str, str] = {}
    missing = []
    for question in questions:
        if question.generated:
            answers[question.name] = secrets.token_urlsafe(32)
        elif _on_terminal() and not question.optional:
            answers[question.name] = click.prompt(
                question.hint,
                default=question.default,
                hide_input=question.secret,
                value_proc=question.checked,
                err=True,
            )
        elif question.default is not None:
            answers[question.name] = question.checked(question.default)
        else:
            missing.append(f"  --set {question.key}={'FILE' if question.secret else 'VALUE'}: {question.hint}")
    if missing:
        raise click.UsageError("\n".join(["without a terminal, these are required:", *missing]))
    return answers


def _on_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
