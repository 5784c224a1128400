"""Usher and the self-hosted backend in one process, with injected faults and simulated time."""

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from pydantic import SecretStr
from sqlalchemy import Engine, select

from app.backend.app import create_backend
from app.backend.security.outgoing import open_session
from app.backend.settings import SelfHostedBackendSettings
from app.commands.bootstrap.databases import BACKEND_MIGRATIONS, STORE_MIGRATIONS
from app.contract.operations import by_name
from app.foundation.database.engine import open_engine, reading
from app.foundation.database.migrations import upgrade
from app.sync.ledger.tables import LedgerItemRow
from app.sync.runs.run import Run
from tests.faults.layer import FaultLayer
from tests.worlds.company import HOME, Company, Held
from tests.worlds.database_copies import InPlaceCopy
from tests.worlds.world import UsherWorld, new_workspace

_FOREIGN = ("theirs", "guest")
"""What others put into our organization begins with one of these."""


class FaultyWorld(UsherWorld):
    """One backend, one company, one ledger. ``begin`` empties them: new engines and a new application for each schedule
    would take longer than the schedule."""

    company: Company
    layer: FaultLayer
    allow_deletes = True
    max_in_flight = 1

    def __init__(self, folder: Path) -> None:
        super().__init__(open_engine(f"sqlite:///{folder / 'usher.db'}"))
        self.folder = folder
        self.backend_engine: Engine = open_engine(f"sqlite:///{folder / 'backend.db'}")
        for engine, migrations in ((self.engine, STORE_MIGRATIONS), (self.backend_engine, BACKEND_MIGRATIONS)):
            upgrade(engine, migrations)
        self._empty = InPlaceCopy(self.engine), InPlaceCopy(self.backend_engine)
        self._planted: tuple[InPlaceCopy, str, str] | None = None
        """The backend in which others put something, and the API key and auth token of that workspace."""
        settings = SelfHostedBackendSettings(
            database_url=f"sqlite:///{folder / 'backend.db'}",
            secret_key=SecretStr("a secret key for tests only"),
            workspaces_per_hour=1_000_000,
        )
        self.app = create_backend(
            settings,
            self.backend_engine,
            self.time,
            Random(4),
            open_session(allow_private=False),
            sleep=self.time.sleep,
        )

    def begin(self, company: Company, *, batch_size: int = 200, max_in_flight: int = 1, foreign: bool = False) -> None:
        """Empty databases, a new workspace, this company; on demand, what others put there."""
        self.time.restart()
        usher, backend = self._empty
        usher.restore(self.engine)
        if foreign and self._planted is not None:
            backend, self.api_key, self.auth_token = self._planted
            backend.restore(self.backend_engine)
        else:
            backend.restore(self.backend_engine)
            self.api_key, self.auth_token = new_workspace(self.app)
            if foreign:
                self._plant_foreign()
                self._planted = InPlaceCopy(self.backend_engine), self.api_key, self.auth_token
        self.company = company
        self.sources = [company]
        self.batch_size, self.max_in_flight = batch_size, max_in_flight
        self.stop = threading.Event()
        self.random = Random(0)
        self.transport = self.layer = FaultLayer(self.app, self.time, change_something=self.change_something)

    def close(self) -> None:
        super().close()
        self.backend_engine.dispose()

    def sync(self, **request: Any) -> Run:
        self.layer.begin_run()
        return super().sync(**request)

    # Calls to the backend that bypass Usher.

    def call_backend(self, operation: str, *, other_version: bool = False, **data: Any) -> Any:
        """Calls the backend directly and returns the response, also of an error."""
        contracted = by_name(operation)
        path = (contracted.other_version_path if other_version else None) or contracted.path
        headers = {"x-service-api-key": self.api_key, "x-service-auth-token": self.auth_token}
        return self.app.test_client().post(path, json={"data": data}, headers=headers).json

    def _plant_foreign(self) -> None:
        """Adds the items of other clients, which Usher must not change."""
        everyone = [{"userId": "guest-1", "name": "Guest", "email": "guest@other.example"}]
        for organization in ("theirs Ltd", HOME):
            self.call_backend(
                "add_organizations", organizations=[{"organizationId": organization, "organizationName": "X"}]
            )
            self.call_backend(
                "add_folder", organizationId=organization, folders=[{"folderId": "theirs", "folderName": "T"}]
            )
            self.call_backend(
                "add_documents",
                organizationId=organization,
                folderId="theirs",
                documents=[{"documentId": "theirs-1", "documentName": "T"}],
            )
            self.call_backend(
                "add_documents",
                organizationId=organization,
                documents=[{"documentId": "theirs-2", "documentName": "T"}],
            )
            self.call_backend("add_users", organizationId=organization, users=everyone)
            self.call_backend("add_users", organizationId=organization, folderId="theirs", users=everyone)
            self.call_backend("add_users", organizationId=organization, documentId="theirs-2", users=everyone)
            self.call_backend(
                "add_groups",
                organizationId=organization,
                organizationUserGroups=[{"groupId": "theirs", "groupName": "T"}],
            )
            self.call_backend(
                "add_users_to_groups",
                organizationId=organization,
                organizationUserGroupId="theirs",
                userIds=["guest-1"],
            )

    def change_something(self, random: Random) -> None:
        """Someone changes or removes something of ours behind our back; they make nothing new."""
        held = self.held()
        change = random.choice(
            (
                self._behind_organizations,
                self._behind_folders,
                self._behind_folders,
                self._behind_documents,
                self._behind_documents,
                self._behind_users,
                self._behind_users,
                self._behind_members,
            )
        )
        change(random, held)

    def _behind_organizations(self, random: Random, held: Held) -> None:
        name = _any(random, held["organizations"])
        if name is None:
            return
        if random.random() < 0.3 and name != HOME:
            self.call_backend("delete_organizations", organizationIds=[name])
        elif random.random() < 0.5:
            self.call_backend("disable_organizations", organizationIds=[name], disabled=random.random() < 0.5)
        else:
            self.call_backend(
                "update_organizations", organizations=[{"organizationId": name, "organizationName": "changed"}]
            )

    def _behind_folders(self, random: Random, held: Held) -> None:
        found = _any(random, held["folders"])
        if found is None:
            return
        organization, folder = found
        what = random.randrange(4)
        if what == 0:
            self.call_backend("delete_folder", organizationId=organization, folderId=folder)
        elif what == 1:
            self.call_backend(
                "update_folder", organizationId=organization, folders=[{"folderId": folder, "folderName": "c"}]
            )
        elif what == 2:
            moved = {"folderId": folder, "folderName": "c", "parentFolderId": "root"}
            self.call_backend("update_folder", organizationId=organization, folders=[moved])
        else:
            access = {"accessType": "public"} if random.random() < 0.5 else {"inheritFromParent": True}
            self.call_backend("update_folder_access", organizationId=organization, folderIds=[folder], **access)

    def _behind_documents(self, random: Random, held: Held) -> None:
        found = _any(random, held["documents"])
        if found is None:
            return
        organization, document = found
        what = random.randrange(4)
        given = {"organizationId": organization, "documentIds": [document]}
        if what == 0:
            self.call_backend("delete_documents", **given)
        elif what == 1:
            changed = {"documentId": document, "documentName": "changed"}
            self.call_backend("update_documents", organizationId=organization, documents=[changed])
        elif what == 2:
            self.call_backend("move_documents", **given, folderId="root")
        else:
            self.call_backend("update_document_access", **given, accessType=random.choice(("public", "restricted")))

    def _behind_users(self, random: Random, held: Held) -> None:
        found = _any(random, held["users"])
        if found is None:
            return
        organization, level, container, user = found
        place: dict[str, Any] = {"organizationId": organization}
        if level != "organization":
            place[f"{level}Id"] = container
        if random.random() < 0.5:
            self.call_backend("delete_users", **place, userIds=[user])
        else:
            changed = {"userId": user, "name": "changed", "email": "changed@x.example", "accessRole": "viewer"}
            self.call_backend("update_users", other_version=True, **place, users=[changed])

    def _behind_members(self, random: Random, held: Held) -> None:
        found = _any(random, held["members"])
        if found is not None:
            organization, group, user = found
            given = {"organizationId": organization, "organizationUserGroupId": group, "userIds": [user]}
            self.call_backend("delete_users_from_groups", **given)

    # What is there.

    def held(self, *, foreign: bool = False) -> Held:
        """What the backend's own tables hold of ours, or of others, in the form of ``company.desired``."""
        held: Held = {"organizations": {}, "folders": {}, "documents": {}, "groups": set(), "members": set()}
        with closing(sqlite3.connect(self.folder / "backend.db")) as database:
            rows = {name: database.execute(sql).fetchall() for name, sql in _TABLES.items()}
        folder_types = {(row[0], row[1]): row[4] for row in rows["folders"]}
        for organization, disabled, payload in rows["organizations"]:
            held["organizations"][organization] = (json.loads(payload), bool(disabled))
        for organization, folder, parent, own, _in_force, payload in rows["folders"]:
            held["folders"][organization, folder] = (json.loads(payload), parent, own)
        for organization, document, folder, own, payload in rows["documents"]:
            in_force = own or folder_types.get((organization, folder), "organizationPrivate")
            held["documents"][organization, document] = (json.loads(payload), folder, in_force)
        held["groups"] = set(rows["groups"])
        held["members"] = set(rows["members"])
        held["users"] = {tuple(row[:4]): (json.loads(row[5]), row[4]) for row in rows["users"]}
        return _only(held, _is_foreign if foreign else lambda key: not _is_foreign(key))

    def ledger(self) -> dict[tuple[str, str, str, str], Any]:
        with reading(self.engine) as connection:
            rows = connection.execute(select(LedgerItemRow.__table__)).all()
        return {(row.kind, row.organization_id, row.container_id, row.item_id): row for row in rows}


_TABLES = {
    "organizations": "SELECT organization_id, disabled, payload FROM organization",
    "folders": "SELECT organization_id, folder_id, parent_folder_id, own_access_type, access_type, payload FROM folder",
    "documents": "SELECT organization_id, document_id, folder_id, own_access_type, payload FROM document",
    "groups": "SELECT organization_id, group_id FROM user_group",
    "members": "SELECT organization_id, group_id, user_id FROM group_member",
    "users": "SELECT organization_id, level, container_id, user_id, access_role, payload FROM user_entry",
}


def _is_foreign(key: Any) -> bool:
    return any(part.startswith(_FOREIGN) for part in ((key,) if isinstance(key, str) else key))


def _only(held: Held, wanted: Callable[[Any], bool]) -> Held:
    return {
        name: {key: value for key, value in some.items() if wanted(key)}
        if isinstance(some, dict)
        else {key for key in some if wanted(key)}
        for name, some in held.items()
    }


def _any(random: Random, some: Any) -> Any:
    return random.choice(sorted(some)) if some else None
