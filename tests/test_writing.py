"""Words to avoid in docstrings, comments, names, pages, templates and error messages."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

INSTEAD = {
    r"told|tells?|telling|says?|said|saying": "report, return, store, contain",
    r"whoever|nobody's|somebody's": "caller, operator, client, user; unowned",
    r"stands? (?:in|at|for|on|there|beside)": "is in, is at, exists, means",
    r"what is wrong with": "problems of, errors in",
    r"gave|gives|given by": "provides, contains, returns",
    r"(?:becomes?|became|come|came) of|came to": "result, outcome",
    r"brings? about|brought about": "cause, create",
    r"anew|once more|as ever|besides|thereby|altogether": "again, also, in total",
    r"lets? go of|gives? way": "release, replace",
    r"look(?:s|ed)? at|looking at": "read, check, compare",
    r"at hand": "available, cached",
    r"put together": "build, compose",
    r"it is owed|owed to": "pending, still to be sent",
    r"mend(?:s|ed|ing)?": "fix",
    r"(?:whole|read) in part|a read that is whole": "a partial read, a complete read",
    r"a matter of|the way out|the way of": "name it; path",
    r"test (?:what|who|nobody|how)": "name the behaviour: test counts match items",
}
WORDS = re.compile(r"\b(?:" + "|".join(INSTEAD) + r")\b", re.IGNORECASE)

ALLOWED: dict[str, str] = {"`gives`": "a field of explanations"}
"""A phrase → why it may stay."""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The docstrings of the module and of its classes, functions, fields and constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for item in node.body:
                if (
                    isinstance(item, ast.Expr)
                    and isinstance(item.value, ast.Constant)
                    and isinstance(item.value.value, str)
                ):
                    yield item.lineno, item.value.value


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts of errors that are raised."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            for part in ast.walk(node.exc):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def names(tree: ast.Module, *, variables: bool) -> Iterator[tuple[int, str]]:
    """The names of functions and classes, and of parameters and variables, as words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name.replace("_", " ")
        elif variables and isinstance(node, ast.arg):
            yield node.lineno, node.arg.replace("_", " ")
        elif variables and isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, (node.id if isinstance(node, ast.Name) else node.attr).replace("_", " ")


def texts() -> Iterator[tuple[str, int, str]]:
    """Place, line and text of everything that is checked."""
    pages = [*ROOT.glob("*.md"), *(page for top in ("app", "config", "tests") for page in (ROOT / top).rglob("*.md"))]
    for page in [*pages, *(ROOT / "app").rglob("*.html")]:
        if page.name != "CHANGELOG.md":
            for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
                yield str(page.relative_to(ROOT)), number, line
    for module in [*(ROOT / "app").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        source = module.read_text(encoding="utf-8")
        # Most modules contain none of the words at all, and are not parsed.
        if "versions" in module.parts or not WORDS.search(source.replace("_", " ")):
            continue
        tree, is_test = ast.parse(source), module.is_relative_to(ROOT / "tests")
        raised = [] if is_test else messages(tree)
        for line_number, text in [*docstrings(tree), *comments(source), *names(tree, variables=is_test), *raised]:
            yield str(module.relative_to(ROOT)), line_number, text


def test_texts_are_in_plain_english() -> None:
    found = []
    for place, line, text in texts():
        checked = re.sub("|".join(map(re.escape, ALLOWED)), "", text) if ALLOWED else text
        found += [f"{place}:{line}: {word}" for word in WORDS.findall(checked)]
    assert found == []
