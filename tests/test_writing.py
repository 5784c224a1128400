"""Words to avoid in module heads, public docstrings, pages, templates and error messages."""

import ast
import re
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
}
WORDS = re.compile(r"\b(?:" + "|".join(INSTEAD) + r")\b", re.IGNORECASE)

ALLOWED: dict[str, str] = {"`gives`": "a field of explanations"}
"""A phrase → why it may stay."""


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The module head, and the docstrings of public classes, functions, fields and constants."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if not isinstance(node, ast.Module) and node.name.startswith("_"):
            continue
        if isinstance(node, ast.FunctionDef):
            yield from [(node.lineno, text)] if (text := ast.get_docstring(node)) else []
            continue
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


def texts() -> Iterator[tuple[str, int, str]]:
    """Place, line and text of everything that is checked."""
    pages = [*ROOT.glob("*.md"), *(page for top in ("app", "config", "tests") for page in (ROOT / top).rglob("*.md"))]
    for page in [*pages, *(ROOT / "app").rglob("*.html")]:
        if page.name != "CHANGELOG.md":
            for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
                yield str(page.relative_to(ROOT)), number, line
    for module in (ROOT / "app").rglob("*.py"):
        if "versions" not in module.parts:
            tree = ast.parse(module.read_text(encoding="utf-8"))
            for line_number, text in [*docstrings(tree), *messages(tree)]:
                yield str(module.relative_to(ROOT)), line_number, text


def test_texts_are_in_plain_english() -> None:
    found = []
    for place, line, text in texts():
        checked = re.sub("|".join(map(re.escape, ALLOWED)), "", text) if ALLOWED else text
        found += [f"{place}:{line}: {word}" for word in WORDS.findall(checked)]
    assert found == []
