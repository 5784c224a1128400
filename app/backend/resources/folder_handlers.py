"""Handlers of folders: add, rename, move, set the access type, read as a tree, delete."""

from collections.abc import Container, Iterable

from sqlalchemy import Connection, Row, select

from app.backend.http.call import Call, Reply
from app.backend.http.results import TOO_LARGE, Results, all_failed, by_id, done, failed, grows_too_large, merged_by_id
from app.backend.resources.containers import (
    NO_FOLDER,
    NO_ORGANIZATION,
    ensure_organization,
    folder_exists,
    organization_exists,
)
from app.backend.resources.folder_tree import FOLDER_COLUMNS, NO_PARENT, TOP, FolderTree, FolderTreeError
from app.backend.resources.tables import DOCUMENT, FOLDER
from app.backend.resources.user_entries import delete_entries
from app.backend.scope import Scope, delete_rows, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.paging import fetch_all
from app.contract import limits
from app.contract.errors import NotFound
from app.contract.folders import (
    ROOT_FOLDER_ID,
    AddFolderRequest,
    DeleteFolderRequest,
    FolderInput,
    GetFoldersRequest,
    UpdateFolderAccessRequest,
    UpdateFolderRequest,
)

SubtreeRow = Row[str, str, str, str | None, str, str, int, int]


def stored_parent(folder_id: str | None) -> str:
    """The stored id of a parent: the empty string for the top of the tree."""
    return TOP if folder_id is None or folder_id == ROOT_FOLDER_ID else folder_id


def add_folder(call: Call[AddFolderRequest], connection: Connection) -> Reply:
    """Adds folders. A batch may contain parents and children in any order."""
    request, scope = call.request, call.scope
    folders = by_id(request.folders, "folder_id")
    if not folders:
        return Reply("No folders to add.", {})
    if request.create_organization:
        ensure_organization(connection, scope, call.now)
    elif not organization_exists(connection, scope):
        return Reply("Folders processed.", all_failed(folders, NO_ORGANIZATION))
    parents = {folder_id: stored_parent(folder.parent_folder_id) for folder_id, folder in folders.items()}
    tree = FolderTree(connection, scope, call.backend.settings.default_access_type)
    tree.load({*folders, *parents.values()} - {TOP})
    results: Results = {
        folder_id: failed(folder_id, "Folder already exists.") for folder_id in folders if folder_id in tree.nodes
    }
    if request.create_folder:
        for parent_id in sorted(set(parents.values()) - {TOP} - tree.nodes.keys() - folders.keys()):
            tree.add(parent_id, TOP)
    for folder_id in _parents_first(folders, parents, tree.nodes):
        folder = folders[folder_id]
        try:
            tree.add(folder_id, parents[folder_id], folder.access_type, _payload(folder))
        except FolderTreeError as error:
            results[folder_id] = failed(folder_id, str(error))
        else:
            results[folder_id] = done(folder_id, "Folder added.")
    tree.save(call.now)
    return Reply(
        "Folders processed.", {folder_id: results.get(folder_id, failed(folder_id, NO_PARENT)) for folder_id in folders}
    )


def update_folder(call: Call[UpdateFolderRequest], connection: Connection) -> Reply:
    """Changes the fields of folders, and moves those with a parent in the request."""
    tree = FolderTree(connection, call.scope, call.backend.settings.default_access_type)
    folders = merged_by_id(call.request.folders, "folder_id")
    moves = {folder_id for folder_id, folder in folders.items() if folder.parent_folder_id is not None}
    targets = {stored_parent(folder.parent_folder_id) for folder in folders.values()} - {TOP}
    tree.load(folders.keys() | targets)
    if moves:
        tree.load_below(moves)
    results: Results = {}
    for folder_id, folder in folders.items():
        try:
            _update(tree, folder)
        except FolderTreeError as error:
            results[folder_id] = failed(folder_id, str(error))
        else:
            results[folder_id] = done(folder_id, "Folder updated.")
    tree.recompute()
    tree.save(call.now)
    return Reply("Folders processed.", results)


def _update(tree: FolderTree, folder: FolderInput) -> None:
    """Moves and changes one folder. Raises ``FolderTreeError``."""
    node = tree.nodes.get(folder.folder_id)
    if node is None:
        raise FolderTreeError(NO_FOLDER)
    if grows_too_large(node.payload, _payload(folder)):
        raise FolderTreeError(TOO_LARGE)
    if folder.parent_folder_id is not None:
        tree.move(folder.folder_id, stored_parent(folder.parent_folder_id))
    node.payload |= _payload(folder)


def update_folder_access(call: Call[UpdateFolderAccessRequest], connection: Connection) -> Reply:
    """Sets or clears the folders' own access types. Folders below inherit them."""
    request, scope = call.request, call.scope
    folder_ids = dict.fromkeys(request.folder_ids)
    tree = FolderTree(connection, scope, call.backend.settings.default_access_type)
    tree.load(folder_ids)
    existing = folder_ids.keys() & tree.nodes.keys()
    tree.load_below(existing)
    for folder_id in existing:
        tree.nodes[folder_id].own_access_type = None if request.inherit_from_parent else request.access_type
    tree.recompute()
    tree.save(call.now)
    results: Results = {
        folder_id: {
            "success": True,
            "accessType": tree.nodes[folder_id].access_type,
            "message": "Folder access updated.",
        }
        if folder_id in existing
        else {"success": False, "message": NO_FOLDER}
        for folder_id in folder_ids
    }
    return Reply("Folder access processed.", results)


def get_folders(call: Call[GetFoldersRequest], connection: Connection) -> Reply:
    request, scope = call.request, call.scope
    top = stored_parent(request.folder_id)
    depth = limits.FOLDER_DEPTH_MAX if request.max_depth is None else request.max_depth
    rows = fetch_all(_subtree(connection, scope, top, depth), "ask for less by folderId and maxDepth")
    if top != TOP and not rows:
        raise NotFound(f"data.folderId: {NO_FOLDER}")
    return Reply("Folder(s) retrieved successfully.", _nested(rows, scope.organization_id, top, depth))


def delete_folder(call: Call[DeleteFolderRequest], connection: Connection) -> Reply:
    scope = call.scope
    if not folder_exists(connection, scope, call.request.folder_id):
        raise NotFound(f"data.folderId: {NO_FOLDER}")
    folder_ids = [row.folder_id for row in _subtree(connection, scope, call.request.folder_id, limits.FOLDER_DEPTH_MAX)]
    in_folders = within_ids(connection, scope, DOCUMENT.c.folder_id, folder_ids)
    document_ids = connection.scalars(select(DOCUMENT.c.document_id).where(in_folders)).all()
    # One statement for each level: with an OR, PostgreSQL would scan the entries of both.
    delete_entries(connection, scope, "document", document_ids)
    delete_entries(connection, scope, "folder", folder_ids)
    for delete_dependent in call.backend.on_documents_deleted:
        delete_dependent(connection, scope, document_ids)
    delete_rows(connection, scope, DOCUMENT.c.folder_id, folder_ids)
    delete_rows(connection, scope, FOLDER.c.folder_id, folder_ids)
    return Reply("Folder deleted.", None)


def _parents_first(folders: Iterable[str], parents: dict[str, str], existing: Container[str]) -> Iterable[str]:
    """The new folders with a path to the top of the tree or to an existing folder, parents before children.

    The caller adds folders to ``existing`` during the iteration. Children of a folder that it does not add are skipped,
    as are cycles and descendants of a missing parent.
    """
    children: dict[str, list[str]] = {}
    for folder_id in folders:
        if folder_id not in existing:
            children.setdefault(parents[folder_id], []).append(folder_id)
    pending = [parent for parent in children if parent == TOP or parent in existing]
    while pending:
        for folder_id in children.get(pending.pop(), ()):
            yield folder_id
            if folder_id in existing and folder_id in children:
                pending.append(folder_id)


def _subtree(connection: Connection, scope: Scope, top: str, depth: int) -> Iterable[SubtreeRow]:
    """The folder ``top`` (for ``TOP``, all folders without parent) and its descendants, ``depth`` levels deep."""
    columns = (*FOLDER_COLUMNS, FOLDER.c.created_at, FOLDER.c.updated_at)
    if top == TOP:
        query = select(*columns).where(within(FOLDER, scope), FOLDER.c.depth <= depth)
        return connection.execute(query.order_by(FOLDER.c.folder_id))
    start = select(*columns, FOLDER.c.depth).where(within(FOLDER, scope), FOLDER.c.folder_id == top)
    tree = start.add_columns((FOLDER.c.depth + depth).label("lowest")).cte("tree", recursive=True)
    children = (
        select(*columns, FOLDER.c.depth, tree.c.lowest)
        .join(tree, FOLDER.c.parent_folder_id == tree.c.folder_id)
        .where(within(FOLDER, scope), FOLDER.c.depth <= tree.c.lowest)
    )
    tree = tree.union_all(children)
    return connection.execute(select(*(tree.c[column.name] for column in columns)).order_by(tree.c.folder_id))


def _nested(rows: list[SubtreeRow], organization_id: str, top: str, depth: int) -> list[dict[str, object]]:
    """The folders as trees. At the lowest level ``subFolders`` is absent instead of empty."""
    objects = {row.folder_id: _to_wire(row, organization_id) for row in rows}
    lowest = depth
    if top != TOP:
        lowest += len(json_columns.load_list(next(row for row in rows if row.folder_id == top).ancestors))
    subfolders: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        if len(json_columns.load_list(row.ancestors)) < lowest:
            objects[row.folder_id]["subFolders"] = subfolders.setdefault(row.folder_id, [])
        subfolders.setdefault(row.parent_folder_id, []).append(objects[row.folder_id])
    return subfolders.get(TOP, []) if top == TOP else [objects[top]]


def _to_wire(row: SubtreeRow, organization_id: str) -> dict[str, object]:
    return {
        "folderName": row.folder_id,
        **json_columns.load_object(row.payload),
        "folderId": row.folder_id,
        "organizationId": organization_id,
        "parentFolderId": row.parent_folder_id or ROOT_FOLDER_ID,
        "ancestors": json_columns.load_list(row.ancestors),
        "accessType": row.access_type,
        "inheritAccessFromParent": row.own_access_type is None,
        "createdAt": row.created_at,
        "lastUpdated": row.updated_at,
    }


def _payload(folder: FolderInput) -> dict[str, object]:
    payload = folder.unknown_fields()
    payload.pop("subFolders", None)
    return payload | json_columns.without_none(folderName=folder.folder_name)
