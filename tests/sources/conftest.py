"""A directory file, its access model, a real backend, and permission calls over HTTP."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
import structlog
from flask.testing import FlaskClient
from pydantic import SecretStr

from app.commands.bootstrap.service import service_app
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.service.provider.settings import ProviderSettings
from app.settings import Settings
from app.sync.plan.settings import LimitSettings
from app.sync.runs.run import Run
from tests.faults.world import FaultyWorld
from tests.memory import memory_folder
from tests.worlds.company import Company

LIMITS = LimitSettings(delete_count=50, delete_percent=20)


class FileWorld(FaultyWorld):
    """The world of the fault tests, with a directory in files, limits, and the service in front."""

    allow_deletes = False

    directory: DirectorySettings

    def configure(self, *files: Path, grace: int = 0, limits: LimitSettings = LIMITS, max_age: int = 0) -> None:
        """Which files the directory is made of, and how careful Usher is."""
        given: Any = [{"type": "file", "path": str(file), "name": file.name.partition(".")[0]} for file in files]
        self.directory = DirectorySettings(sources=given, grace=grace, max_age=max_age, read_timeout=30)
        self.sources = sources_from_settings(self.directory)
        self.limits = limits

    @property
    def directory_settings(self) -> DirectorySettings:
        return self.directory

    def service(self) -> FlaskClient:
        """The service on the same database."""
        settings = Settings(
            provider=ProviderSettings(auth_tokens=(SecretStr("ask"),), decision_ttl=0), directory=self.directory
        )
        return service_app(settings, self.engine, clock=self.time, new_id=lambda: "id").test_client()

    def may(self, user: str, document: str = "handbook") -> bool:
        """What the service answers."""
        resource = {"type": "document", "id": document, "organizationId": "acme"}
        answer = self.service().post(
            "/permissions/check",
            json={"data": {"requests": [{"userId": user, "resource": resource}]}},
            headers={"Authorization": "Bearer ask"},
        )
        assert answer.status_code == 200, answer.data
        return bool(answer.get_json()["data"][0]["hasAccess"])

    def members(self) -> set[str]:
        """The users in the organization of the backend, including those of other clients."""
        held = self.held()["users"] | self.held(foreign=True)["users"]
        return {user for organization, level, _, user in held if (organization, level) == ("acme", "organization")}

    def readiness(self) -> tuple[int, dict[str, Any]]:
        answer = self.service().get("/readyz")
        return answer.status_code, answer.get_json()["checks"]["directory"]

    def metric(self, name: str, **labels: str) -> float:
        """One number of those that the service shows."""
        wanted = name + ("{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}" if labels else "")
        lines = self.service().get("/metrics").get_data(as_text=True).splitlines()
        [value] = [line.rpartition(" ")[2] for line in lines if line.rpartition(" ")[0] == wanted]
        return float(value)


@dataclass
class People:
    """A directory file: an organization, so many members and a document; ``write`` puts it there in one go."""

    file: Path
    users: list[str]
    more: Sequence[Mapping[str, object]] = ()

    def records(self) -> list[Mapping[str, object]]:
        return [
            {"kind": "organization", "organizationId": "acme", "organizationName": "Acme"},
            {"kind": "document", "organizationId": "acme", "documentId": "handbook", "documentName": "Handbook"},
            *({"kind": "user", "userId": user, "name": user, "email": f"{user}@acme.example"} for user in self.users),
            *({"kind": "membership", "organizationId": "acme", "userId": user} for user in self.users),
            *self.more,
        ]

    def text(self) -> str:
        return "".join(json.dumps(record) + "\n" for record in self.records())

    def write(self, text: str | None = None) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(self.text() if text is None else text, "utf-8")
        fresh.replace(self.file)


@pytest.fixture(scope="module")
def any_file_world() -> Iterator[FileWorld]:
    folder = Path(tempfile.mkdtemp(prefix="usher-sources-", dir=memory_folder()))
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    world = FileWorld(folder)
    yield world
    world.close()
    structlog.reset_defaults()
    shutil.rmtree(folder)


@pytest.fixture
def people(tmp_path: Path) -> People:
    """Forty people, u00 to u39."""
    return People(tmp_path / "people.jsonl", [f"u{number:02}" for number in range(40)])


@pytest.fixture
def world(any_file_world: FileWorld, people: People) -> FileWorld:
    """In step with the forty; beside them somebody whom others put there."""
    any_file_world.begin(Company(Random(1), size=0))
    any_file_world.configure(people.file)
    people.write()
    assert ended(any_file_world) == "done"
    guest = [{"userId": "guest-1", "name": "Guest", "email": "guest@other.example"}]
    any_file_world.call_backend("add_users", organizationId="acme", users=guest)
    return any_file_world


def ended(world: FileWorld, **request: Any) -> str:
    """How the next run ends, a quarter of an hour later."""
    return str(run_of(world, **request).status)


def run_of(world: FileWorld, **request: Any) -> Run:
    world.time.sleep(timedelta(minutes=15).total_seconds())
    return world.sync(**request)
