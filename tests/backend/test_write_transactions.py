"""Slow work is done before a write transaction begins, because other writers wait for it."""

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import local
from typing import Any

import pytest
from sqlalchemy import Connection

from app.backend.editor import editor_data
from app.backend.embedders.hashing import HashingEmbedder
from app.backend.http.call import Backend
from app.backend.permissions import provider_call
from app.backend.resources.folder_tree import MAX_DEPTH, FolderTree, FolderTreeError, Node
from app.backend.security import outgoing
from app.backend.tokens import token_handlers
from app.backend.webhooks import payload
from app.backend.workspaces import domain_handlers, workspace_handlers
from app.contract.operation import AnyOperation
from app.contract.operations import OPERATIONS

from .conftest import BackendWorld, Caller
from .sampling import Actor

HERE = local()
EDITOR = {"organizationId": "acme", "documentId": "plan", "editorId": "main"}
SLOW: list[tuple[Any, str]] = [
    (editor_data, "value_of"),
    (HashingEmbedder, "embed"),
    (workspace_handlers, "owner_address"),
    (domain_handlers, "stripped_domain"),
    (outgoing, "check_url"),
    (payload, "parse_public_key"),
    (payload, "body_of"),
    (provider_call, "ask"),
    (token_handlers, "signed_token"),
    (token_handlers, "signature"),
]
"""Slow functions, which must not be called in a write transaction."""


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of slow functions that were called in a write transaction."""
    caught: list[str] = []
    real = Backend.writing

    @contextmanager
    def writing(self: Backend) -> Iterator[Connection]:
        with real(self) as connection:
            HERE.writes = True
            try:
                yield connection
            finally:
                HERE.writes = False

    monkeypatch.setattr(Backend, "writing", writing)
    for owner, name in SLOW:
        original = getattr(owner, name)

        def noticing(*args: Any, _name: str = name, _original: Callable[..., Any] = original, **kwargs: Any) -> Any:
            if getattr(HERE, "writes", False):
                caught.append(_name)
            return _original(*args, **kwargs)

        monkeypatch.setattr(owner, name, noticing)
        # Also in modules that imported the function.
        for module in [module for key, module in sys.modules.items() if key.startswith("app.backend")]:
            if getattr(module, name, None) is original:
                monkeypatch.setattr(module, name, noticing)
    yield caught
    HERE.writes = False


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_write_transactions_call_no_slow_function(
    standing: BackendWorld, operation: AnyOperation, watched: list[str]
) -> None:
    actor = Actor(standing)
    actor.prepare(operation)
    assert actor.caller(operation).call(operation.name, **actor.data(operation)).status_code == 200
    assert watched == []


def test_concurrent_edits_all_succeed(world: BackendWorld, tenant: Caller) -> None:
    tenant("add_crdt_data", **EDITOR, data="", type="text")
    nodes = [Caller(world.app, tenant.headers)] * 8
    with ThreadPoolExecutor(len(nodes)) as pool:
        answers = list(
            pool.map(lambda n: n[1].call("update_crdt_data", **EDITOR, data=str(n[0]), type="text"), enumerate(nodes))
        )
    assert [answer.status_code for answer in answers] == [200] * len(nodes)


def test_one_of_several_concurrent_additions_wins(world: BackendWorld, tenant: Caller) -> None:
    nodes = [tenant, Caller(world.another_node(), tenant.headers)] * 2
    with ThreadPoolExecutor(len(nodes)) as pool:
        answers = list(pool.map(lambda node: node.call("add_crdt_data", **EDITOR, data="x", type="text"), nodes))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]


def test_moves_match_a_check_of_the_whole_tree() -> None:
    """Compares each move with a check of the whole tree."""
    random_ = random.Random(7)
    for _ in range(30):
        tree = FolderTree(None, None, "restricted")  # type: ignore[arg-type]  # nothing is loaded or saved
        for number in range(160):
            # Long chains, to reach the maximum depth.
            parent = "" if number % 70 == 0 else f"f{number - random_.choice([1, 1, 1, 1, 1, 1, 2, 7]) % number}"
            parent = parent if parent in tree.nodes else ""
            tree._put(Node(f"f{number}", parent, [], None, "restricted"))
        outcomes = set()
        for _ in range(200):
            folder, parent = (f"f{random_.randrange(160)}" for _ in range(2))
            expected = verdict(tree, folder, parent)
            try:
                tree.move(folder, parent)
                outcome = ""
            except FolderTreeError as refusal:
                outcome = str(refusal)
            assert outcome == expected
            outcomes.add(outcome[:6])
    assert len(outcomes) >= 2


def test_repeated_moves_of_a_large_folder_walk_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = FolderTree(None, None, "restricted")  # type: ignore[arg-type]  # nothing is loaded or saved
    for folder, parent in [("x", ""), ("y", ""), ("large", ""), *((f"f{number}", "large") for number in range(500))]:
        tree._put(Node(folder, parent, [], None, "restricted"))
    visited: list[Node] = []
    subfolders = FolderTree._subfolders

    def visit(tree: FolderTree, node: Node) -> Iterable[Node]:
        visited.append(node)
        return subfolders(tree, node)

    monkeypatch.setattr(FolderTree, "_subfolders", visit)
    for _ in range(100):
        tree.move("large", "x")
        tree.move("large", "y")
    assert len(visited) == 501


def verdict(tree: FolderTree, folder: str, parent: str) -> str:
    parents = {node.folder_id: node.parent_id for node in tree.nodes.values()}
    if parents[folder] == parent:
        return ""
    way = [parent]
    while parents[way[-1]]:
        way.append(parents[way[-1]])
    if folder in way:
        return "A folder cannot be moved into itself or a folder below it."
    height, level = 0, {folder}
    while level:
        height += 1
        level = {item for item, above in parents.items() if above in level}
    return f"Folders cannot be nested deeper than {MAX_DEPTH} levels." if len(way) + height > MAX_DEPTH else ""
