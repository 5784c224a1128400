"""Compares the README files of the packages with the code, and checks the structure of the modules."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import app
from app.access.index.layout import MAX_LISTED
from app.access.problem_list import PROBLEMS_KEPT
from app.access.problems import ProblemSort
from app.access.refresh.change_log import MAX_LOGGED
from app.access.stored_problems import COUNT_EVERY_MS
from app.client.retry import RetryPolicy
from app.client.settings import BackendSettings
from app.sync.apply.applier import _DATABASE_PATIENCE
from app.sync.apply.batch import OutcomeKind
from app.sync.apply.gate import MAX_UNANSWERED
from app.sync.ledger.failures import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, PARKED_AFTER
from app.sync.ledger.items import ITEM_STATUSES, Kind
from app.sync.ledger.observed import FOREIGN_NAMED
from app.sync.plan.rules import RULES, Aspect
from app.sync.plan.settings import LimitSettings
from app.sync.runs.lifecycle import MAX_CONTINUATIONS
from app.sync.runs.queue import MAX_QUEUED
from app.sync.runs.run import HELD_FOR, MOVES

pytestmark = pytest.mark.xdist_group("documents")

APP = Path(app.__file__).parent
ROOT = APP.parent


@cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


def section(page: str, name: str) -> str:
    return (APP / page).read_text(encoding="utf-8").split(f"\n## {name}\n")[1].split("\n## ")[0]


def rows(page: str, name: str, head: str) -> Iterator[list[str]]:
    """The cells of the table whose first heading is ``head``."""
    lines = iter(section(page, name).splitlines())
    for line in lines:
        if line.startswith(f"| {head} |"):
            break
    next(lines)
    for line in lines:
        if not line.startswith("| "):
            break
        yield [cell.strip() for cell in line.strip("|").split("|")]


def codes(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def layers() -> dict[str, list[set[str]]]:
    """Package → its layers, from the top, by the import linter's settings."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    return {
        "".join(order["containers"]): [set(re.findall(r"\w+", layer)) for layer in order["layers"]]
        for order in linter["contracts"]
        if order["type"] == "layers"
    }


def test_packages_match_the_linter() -> None:
    """The linter's list is exhaustive, so the table is as well."""
    listed = [{name.strip("`")} for name, *_ in rows("README.md", "Packages", "package")]
    assert listed == layers()["app"]


def test_picture_of_the_backend_matches_the_linter() -> None:
    picture = section("README.md", "Packages").split("```")[1]
    assert [set(line.split()) for line in picture.strip().splitlines()] == layers()["app.backend"]


def test_table_of_backend_packages_follows_the_import_order() -> None:
    height = {room: level for level, rooms in enumerate(layers()["app.backend"]) for room in rooms}
    table = rows("backend/README.md", "Packages", "package")
    listed = [room for cells in table for room in re.findall(r"`(\w+)(?:/|\.py)`", cells[0])]
    assert listed.pop() == "migrations"
    assert set(listed) == set(height)
    assert [height[room] for room in listed] == sorted(height[room] for room in listed)


BUILT_FROM_SETTINGS = {
    "AccessIndex", "BackendClient", "BackendSigner", "DatabaseMetrics",
    "Heartbeat", "Metrics", "SyncEngine", "Watch", "Worker",
    "channels_from_settings", "create_app", "create_metrics_app", "make_workspace", "source_pollers", "scheduler_for",
    "sources_from_settings", "sync_lock", "targets_from_settings",
}  # fmt: skip
"""Parts that only ``app/commands/bootstrap`` may build."""


def test_only_the_composition_root_builds_parts() -> None:
    violations = [
        f"{path.relative_to(ROOT)}:{node.lineno} builds {node.func.id}"
        for path in sorted(APP.rglob("*.py"))
        if not {"bootstrap", "backend"} & set(path.relative_to(APP).parts)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BUILT_FROM_SETTINGS
    ]
    assert violations == []


def test_terms_of_the_glossary_are_unique_and_sorted() -> None:
    terms = list(rows("README.md", "Glossary", "term"))
    assert len(terms) > 20
    assert [term for term, _, _ in terms] == sorted({term for term, _, _ in terms})
    for _, meaning, home in terms:
        assert meaning
        assert codes(home)


def test_table_of_statuses_matches_the_code() -> None:
    documented = {name.strip("`"): codes(moves) for name, _, moves in rows("sync/runs/README.md", "Statuses", "status")}
    assert documented == {status.value: {to.value for to in targets} for status, targets in MOVES.items()}


def test_table_of_phases_matches_the_rules() -> None:
    documented = [
        (int(phase), name, kind, operation.strip("`"), action)
        for phase, name, kinds, operation, action in rows("sync/plan/README.md", "Phases", "phase")
        for kind in codes(kinds)
    ]
    expected = [
        (int(rule.phase), rule.phase.name.lower().replace("_", " "), rule.kind.value, rule.operation, rule.action.value)
        for rule in RULES
    ]
    assert sorted(documented) == sorted(expected)
    assert [phase for phase, *_ in documented] == sorted(phase for phase, *_ in documented)


def test_every_kind_and_aspect_of_items_is_documented() -> None:
    kinds = [kind for cells in rows("sync/plan/README.md", "Desired", "kind") for kind in codes(cells[0])]
    assert sorted(kinds) == sorted(kind.value for kind in Kind)
    aspects = [name for name, _, _ in rows("sync/plan/README.md", "Differences", "aspect")]
    assert aspects == [aspect.name.lower() for aspect in Aspect if aspect.name]


def test_every_status_of_items_is_documented() -> None:
    documented = [status.strip("`") for status, _, _ in rows("sync/plan/README.md", "Item statuses", "status")]
    assert sorted(documented) == sorted(ITEM_STATUSES)


def test_every_outcome_is_documented() -> None:
    documented = [name for cells in rows("sync/apply/README.md", "Outcomes", "outcome") for name in codes(cells[0])]
    assert sorted(documented) == sorted(kind.value for kind in OutcomeKind)


def test_every_sort_of_problem_is_documented() -> None:
    assert [sort.strip("`") for sort, _, _ in rows("access/README.md", "Problems", "sort")] == [
        sort.value for sort in ProblemSort
    ]


# The backend's page is a list of choices, and longer.
SHORT_PAGES = sorted({str(page.parent.relative_to(APP)) for page in APP.rglob("README.md")} - {"backend"})


@pytest.mark.parametrize("page", SHORT_PAGES)
def test_pages_are_short_and_name_existing_files(page: str) -> None:
    text = (APP / page / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    for named in re.findall(r"`((?:app|tests|config)/[\w/.]+)`", text):
        assert (ROOT / named).exists(), named
    modules = {str(module.relative_to(APP / page)) for module in (APP / page).rglob("*.py")}
    for named in re.findall(r"`([\w/]+\.py)`", text):
        here = named in modules or any(module.endswith(f"/{named}") for module in modules)
        assert here or (ROOT / named).exists(), named


@pytest.mark.parametrize(
    "page", ["access", "access/impact", "access/listing", "sync/apply", "sync/ledger", "sync/plan", "sync/runs"]
)
def test_tables_of_modules_are_complete(page: str) -> None:
    text = (APP / page / "README.md").read_text(encoding="utf-8")
    # Packages with a page of their own.
    others = {"decision", "impact", "index", "listing"} if page == "access" else set[str]()
    modules = [module for module in (APP / page).rglob("*.py") if others.isdisjoint(module.parts)]
    for module in modules:
        assert module.name == "__init__.py" or module.name in text, module


CITED = re.compile(r'``((?:app|tests|config)/[\w./-]+\.md)``(?:, ((?:"[^"]+"(?: and )?)+))?')
NAMED = re.compile(r"\b((?:app|tests|config)/[\w./-]+\.md)\b")
NOWHERE = re.compile(
    r"\bdesign's\b|of the design\b|rules of synchroni[sz]ation|\b[tT]able of outcomes|\baccess rules\b"
)
TEXTS = [
    text
    for folder in ("app", "tests", "config")
    for ending in ("py", "yaml", "md")
    for text in sorted((ROOT / folder).rglob(f"*.{ending}"))
    if text != Path(__file__)
]


def flowing(text: Path) -> str:
    """The text on one line, without comment marks."""
    return re.sub(r"\n\s*(?:#\s)?\s*", " ", text.read_text(encoding="utf-8"))


def citations() -> Iterator[tuple[Path, str, list[str]]]:
    for text in TEXTS:
        for page, sections in CITED.findall(flowing(text)):
            yield text, page, re.findall(r'"([^"]+)"', sections)


def test_cited_pages_and_sections_exist() -> None:
    found = list(citations())
    assert len([sections for _, _, sections in found if sections]) > 20
    for text, page, sections in found:
        assert (ROOT / page).exists(), f"{text}: {page}"
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        assert set(sections) <= set(headings), f"{text}: {page}, {sections}"


def test_named_pages_exist() -> None:
    for text in TEXTS:
        words = flowing(text)
        for page in NAMED.findall(words):
            assert (ROOT / page).exists(), f"{text}: {page}"
        assert not NOWHERE.search(words), text


def test_module_heads_are_not_questions_alone() -> None:
    """A head may contain a question after its subject."""
    heads = {
        str(module.relative_to(ROOT)): (ast.get_docstring(parsed(module)) or "?").split("\n")[0]
        for module in APP.rglob("*.py")
    }
    assert not {
        module: head for module, head in heads.items() if head.endswith("?") and not re.match(r"[^:.?]+[:.] ", head)
    }


def test_named_modules_exist() -> None:
    for module in APP.rglob("*.py"):
        for named in re.findall(r"``(app(?:\.\w+)+)``", module.read_text(encoding="utf-8")):
            path = ROOT / named.replace(".", "/")
            holder = path.parent.with_suffix(".py")
            in_holder = holder.exists() and path.name in holder.read_text(encoding="utf-8")
            assert path.is_dir() or path.with_suffix(".py").exists() or in_holder, f"{module}: {named}"


LONG = {"app/contract/operations.py"}
"""Modules that may be long, because they are one table."""


def _own_lines(function: ast.FunctionDef) -> int:
    """The number of its lines, without nested functions."""
    nested = [node for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and node is not function]
    lines = set(range(function.lineno, (function.end_lineno or 0) + 1))
    return len(lines.difference(*(range(node.lineno, (node.end_lineno or 0) + 1) for node in nested)))


def test_modules_and_functions_are_short() -> None:
    long = []
    for module in APP.rglob("*.py"):
        name, text = str(module.relative_to(ROOT)), module.read_text(encoding="utf-8")
        if "migrations" in module.parts or name in LONG:
            continue
        long += [name] * (text.count("\n") > 450)
        long += [
            f"{name}: {node.name}"
            for node in ast.walk(parsed(module))
            if isinstance(node, ast.FunctionDef)
            and (node.end_lineno or 0) - node.lineno >= 70
            and _own_lines(node) > 70
        ]
    assert long == []


READERS_OF_THE_ACCESS_MODEL = {
    "access/effective.py": "resolves references",
    "access/index/entries.py": "copies the records; decisions check references",
    "access/listing/batch_view.py": "checks groups itself; decisions check the other references",
    "access/listing/resources.py": "finds candidates, which are decided one by one",
    "access/listing/users.py": "finds candidates, which are decided one by one",
    "access/sql_view.py": "checks groups itself; decisions check the other references",
    "sync/plan/desired.py": "checks references as it goes from organizations down",
    "sync/plan/scope.py": "finds more items than may have changed; desired.py decides about them",
    "sync/plan/deletes.py": "asks for disabled organizations, users and groups, which need nothing else",
    "sync/runs/context.py": "asks for users and organizations",
    "sync/plan/fields.py": "reads fields by their digest",
    "sync/plan/differences.py": "reads fields of what is desired",
    "sync/plan/listing.py": "reads names",
    "sync/ledger/observed.py": "compares fields of what the ledger has",
    "sync/apply/containers.py": "lists groups of organizations that the backend has",
    "access/browse/by_name.py": "reads names",
    "access/browse/grants.py": "marks grants without effect",
    "access/browse/lists.py": "marks records without effect",
    "access/browse/lookup.py": "reads single records",
    "access/browse/sizes.py": "lists organizations, counts all records",
    "access/browse/suggestions.py": "reads ids",
    "access/search.py": "searches all records",
    "access/origins.py": "reads aliases",
    "access/export.py": "counts and exports",
    "access/shared_aliases.py": "reads aliases",
}
"""Modules that read tables of the access model, and why they handle records without effect correctly."""

ACCESS_MODEL_TABLE = re.compile(
    r"\b(?:access|model)_(?:organization|user|user_alias|membership|group|group_member|folder|document|grant|context_grant)\b"
    r"|\b(?:ACCESS_TABLES|KIND_TABLES|TABLES_OF_KIND)\b"
)


def test_modules_that_read_the_access_model_are_known() -> None:
    """Its rows may refer to records that do not exist. A reader that ignores that grants access by mistake."""
    found = {
        str(module.relative_to(APP))
        for module in APP.rglob("*.py")
        if ACCESS_MODEL_TABLE.search(module.read_text(encoding="utf-8"))
    }
    writers = ("access/refresh/", "access/tables.py", "access/record_tables.py", "commands/migrations/")
    assert {name for name in found if not name.startswith(writers)} == set(READERS_OF_THE_ACCESS_MODEL)


SHARED_NAMES = {"Document", "Folder", "Organization", "User"}
"""Classes of the directory's records and of the backend's API with the same name."""


def test_class_names_are_unique() -> None:
    defined = defaultdict[str, set[str]](set)
    for module in APP.rglob("*.py"):
        for node in ast.walk(parsed(module)):
            if isinstance(node, ast.ClassDef):
                defined[node.name].add(str(module.relative_to(APP)))
    several = {
        name: {module.split("/")[0] for module in modules} for name, modules in defined.items() if len(modules) > 1
    }
    assert several == {name: {"access", "contract"} for name in SHARED_NAMES}
    assert codes(section("README.md", "Glossary")) >= SHARED_NAMES


def _imported(module: Path) -> Iterator[str]:
    """The modules of ``app`` that a module imports, in functions and for types as well."""
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: name the module from the top"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_have_no_cycle() -> None:
    names = {".".join(module.relative_to(ROOT).with_suffix("").parts): module for module in APP.rglob("*.py")}
    names = {name.removesuffix(".__init__"): module for name, module in names.items()}
    order = TopologicalSorter[str]()
    for name, module in names.items():
        found = {target if target in names else target.rpartition(".")[0] for target in _imported(module)}
        order.add(name, *(found & names.keys() - {name}))
    assert len(list(order.static_order())) == len(names)


WORDS = {1: "one", 3: "three", 5: "five", 10: "ten", 60: "a minute", 100: "a hundred", 6 * 3600: "six hours"}
BACKEND, LIMITS, RETRIES = BackendSettings(), LimitSettings(), RetryPolicy()


@pytest.mark.parametrize(
    ("page", "name", "text"),
    [
        ("sync/plan", "Limits", f"`sync.limits.delete_count` ({LIMITS.delete_count})"),
        ("sync/plan", "Limits", f"`sync.limits.delete_percent` ({LIMITS.delete_percent:g})"),
        ("sync/apply", "Calls", f"`backend.batch_size` ({BACKEND.batch_size})"),
        ("sync/apply", "Calls", f"`backend.max_in_flight` ({BACKEND.max_in_flight})"),
        ("sync/apply", "Calls", f"retries for {sum(_DATABASE_PATIENCE):g} seconds"),
        ("sync/apply", "Tries of one call", f"{RETRIES.repeats} repeats after {RETRIES.first_backoff:g} s"),
        ("sync/apply", "Tries of one call", f"doubled up to {RETRIES.backoff_cap:g} s"),
        ("sync/apply", "Tries of one call", f"(at most {RETRIES.retry_after_cap:g} s)"),
        ("sync/apply", "Tries of one call", f"{RETRIES.max_waiting:g} s in all"),
        ("sync/apply", "Tries of one call", f"{WORDS[MAX_UNANSWERED]} calls in a row"),
        ("sync/apply", "Verify", f"the first {WORDS[FOREIGN_NAMED].removeprefix('a ')} named"),
        ("sync/ledger", "Failures", f"waits: {WORDS[FIRST_PAUSE_MS // 1000]}, doubled each time"),
        ("sync/ledger", "Failures", f"up to {WORDS[LONGEST_PAUSE_MS // 1000]}"),
        ("sync/ledger", "Failures", f"{WORDS[PARKED_AFTER]} in a row"),
        ("access", "Problems", f"the first {WORDS[PROBLEMS_KEPT].removeprefix('a ')} of them"),
        ("access", "Problems", f"at most every {WORDS[COUNT_EVERY_MS // 60_000]}\nminutes"),
        ("access/index", "Rules", f"up to {MAX_LISTED} of them"),
        ("access/index", "Rules", f"more than {MAX_LOGGED:,} records"),
        ("sync/runs", "The queue and the schedule", f"at most {WORDS[MAX_QUEUED]} are queued"),
        ("sync/runs", "The queue and the schedule", f"{WORDS[MAX_CONTINUATIONS]} in a row"),
        ("sync/runs", "Held runs", f"within {HELD_FOR.days} days"),
        ("sync/runs", "Held runs", f"after {HELD_FOR.days} days"),
    ],
)
def test_numbers_on_pages_match_the_code(page: str, name: str, text: str) -> None:
    assert text in section(f"{page}/README.md", name).lower()
