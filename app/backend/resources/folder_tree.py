"""Changes in the tree of folders.

Each row stores the folder's ancestors, depth and effective access type, so that reads are cheap. A change loads the
folders with their ancestors (for inheritance and to detect cycles) and descendants, recomputes in memory, and saves the
folders that changed. The number of statements does not depend on the number of folders.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection, Row, select

from app.backend.resources.tables import FOLDER
from app.backend.scope import Scope, within, within_ids
from app.backend.storage import json_columns
from app.backend.storage.rows import insert_rows, update_rows

MAX_DEPTH = 100
"""The maximum depth. Many programs cannot parse deeper JSON."""

NO_PARENT = "Parent folder does not exist."
_TOO_DEEP = f"Folders cannot be nested deeper than {MAX_DEPTH} levels."

TOP = ""
"""The stored parent of folders at the top of the tree."""

FOLDER_COLUMNS = (
    FOLDER.c.folder_id,
    FOLDER.c.parent_folder_id,
    FOLDER.c.ancestors,
    FOLDER.c.own_access_type,
    FOLDER.c.access_type,
    FOLDER.c.payload,
)


class FolderTreeError(ValueError):
    """A folder cannot be added, changed or moved. The text is the reason."""


@dataclass(slots=True)
class Node:
    """A folder. ``ancestors`` begins with the topmost."""

    folder_id: str
    parent_id: str
    ancestors: list[str]
    own_access_type: str | None
    access_type: str
    payload: dict[str, object] = field(default_factory=dict)

    def stored(self) -> tuple[object, ...]:
        return (self.parent_id, tuple(self.ancestors), self.own_access_type, self.access_type, self.payload.copy())


class FolderTree:
    """The loaded part of an organization's tree."""

    def __init__(self, connection: Connection, scope: Scope, default_access_type: str) -> None:
        self._connection = connection
        self._scope = scope
        self._default = default_access_type
        self._before: dict[str, tuple[object, ...]] = {}
        self._children: dict[str, dict[str, Node]] = {}
        """The loaded subfolders by parent and id."""
        self._heights: dict[str, int] = {}
        """The heights that moves needed, without those that a later move may have changed."""
        self.nodes: dict[str, Node] = {}

    def load(self, folder_ids: Iterable[str]) -> None:
        """Loads the existing ones of these folders, with their ancestors."""
        missing_ids = set(folder_ids) - self.nodes.keys()
        while missing_ids:  # at most twice: the folders, then their ancestors
            condition = within_ids(self._connection, self._scope, FOLDER.c.folder_id, missing_ids)
            rows = self._connection.execute(select(*FOLDER_COLUMNS).where(condition))
            loaded = [self._keep(row) for row in rows]
            missing_ids = {ancestor for node in loaded for ancestor in node.ancestors} - self.nodes.keys()

    def load_below(self, folder_ids: Iterable[str]) -> None:
        """Loads the descendants of these folders."""
        in_folders = within_ids(self._connection, self._scope, FOLDER.c.parent_folder_id, folder_ids)
        below = select(*FOLDER_COLUMNS).where(in_folders).cte("below", recursive=True)
        children = select(*FOLDER_COLUMNS).join(below, FOLDER.c.parent_folder_id == below.c.folder_id)
        # UNION, not UNION ALL: if ``folder_ids`` contains a folder and its ancestor, rows would come twice.
        below = below.union(children.where(within(FOLDER, self._scope)))
        for row in self._connection.execute(select(below)):
            if row.folder_id not in self.nodes:
                self._keep(row)

    def add(
        self,
        folder_id: str,
        parent_id: str,
        own_access_type: str | None = None,
        payload: dict[str, object] | None = None,
    ) -> None:
        """Adds a new folder. Raises ``FolderTreeError`` if it is too deep."""
        parent = self.nodes.get(parent_id)
        ancestors = [] if parent is None else [*parent.ancestors, parent_id]
        if len(ancestors) >= MAX_DEPTH:
            raise FolderTreeError(_TOO_DEEP)
        access_type = own_access_type or (self._default if parent is None else parent.access_type)
        self._put(Node(folder_id, parent_id, ancestors, own_access_type, access_type, payload or {}))

    def move(self, folder_id: str, parent_id: str) -> None:
        """Moves a folder, with its descendants, to another parent. Raises ``FolderTreeError``."""
        node = self.nodes[folder_id]
        if parent_id == node.parent_id:
            return
        if parent_id != TOP and parent_id not in self.nodes:
            raise FolderTreeError(NO_PARENT)
        path = self._path_to_top(parent_id)
        if folder_id in path:
            raise FolderTreeError("A folder cannot be moved into itself or a folder below it.")
        if len(path) + self._height(node) > MAX_DEPTH:
            raise FolderTreeError(_TOO_DEEP)
        for changed in (*self._path_to_top(node.parent_id), *path):
            self._heights.pop(changed, None)
        del self._children[node.parent_id][folder_id]
        node.parent_id = parent_id
        self._put(node)

    def recompute(self) -> None:
        """Recomputes ancestors and access type of every loaded folder, parents first."""
        pending = [node for node in self.nodes.values() if node.parent_id not in self.nodes]
        while pending:
            node = pending.pop()
            parent = self.nodes.get(node.parent_id)
            if parent is not None:
                node.ancestors = [*parent.ancestors, parent.folder_id]
                inherited = parent.access_type
            else:
                node.ancestors = []
                inherited = self._default
            node.access_type = node.own_access_type or inherited
            pending.extend(self._subfolders(node))

    def save(self, now: int) -> None:
        """Inserts the new folders and updates the changed ones."""
        rows = [
            self._scope.payload_row(
                node.payload,
                now,
                folder_id=node.folder_id,
                parent_folder_id=node.parent_id,
                ancestors=json_columns.dump(node.ancestors),
                depth=len(node.ancestors),
                own_access_type=node.own_access_type,
                access_type=node.access_type,
            )
            for node in self.nodes.values()
            if node.stored() != self._before.get(node.folder_id)
        ]
        insert_rows(self._connection, FOLDER, [row for row in rows if row["folder_id"] not in self._before])
        columns = [column.name for column in (*FOLDER_COLUMNS[1:], FOLDER.c.depth, FOLDER.c.updated_at)]
        update_rows(self._connection, FOLDER, columns, [row for row in rows if row["folder_id"] in self._before])

    def _keep(self, row: Row[str, str, str, str | None, str, str]) -> Node:
        node = Node(
            row.folder_id,
            row.parent_folder_id,
            json_columns.load_list(row.ancestors),
            row.own_access_type,
            row.access_type,
            json_columns.load_object(row.payload),
        )
        self._put(node)
        self._before[node.folder_id] = node.stored()
        return node

    def _put(self, node: Node) -> None:
        self.nodes[node.folder_id] = node
        self._children.setdefault(node.parent_id, {})[node.folder_id] = node

    def _subfolders(self, node: Node) -> Iterable[Node]:
        return self._children.get(node.folder_id, {}).values()

    def _height(self, node: Node) -> int:
        """The number of levels of the folder with its descendants."""
        if node.folder_id not in self._heights:
            self._heights[node.folder_id] = 1 + max(map(self._height, self._subfolders(node)), default=0)
        return self._heights[node.folder_id]

    def _path_to_top(self, folder_id: str) -> list[str]:
        """The folder and its ancestors in memory."""
        path: list[str] = []
        while folder_id != TOP:
            path.append(folder_id)
            folder_id = self.nodes[folder_id].parent_id
        return path
