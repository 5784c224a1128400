"""Sample requests of every operation (``samples.yaml``), and an actor who sends them."""

import itertools
from pathlib import Path
from typing import Any

import yaml

from app.backend.embedders import open_embedder
from app.backend.judgments.record import parse_judgment
from app.contract.operation import AnyOperation, AuthLevel

from .conftest import BackendWorld, Caller
from .judgment_imports import import_judgments

_FILE: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "samples.yaml").read_text())
SAMPLES: dict[str, dict[str, Any]] = _FILE["operations"]
"""By operation: ``before``, ``data`` and ``shows``."""
_NUMBERS = itertools.count(1)
NEEDS_API_KEY = frozenset({AuthLevel.K, AuthLevel.BODY})


class Actor:
    """The owner of a workspace and an API key, with the items of the samples."""

    def __init__(self, world: BackendWorld, mark: str = "mark-of-one") -> None:
        self.world = world
        self.mark = mark
        email = f"owner-{mark}-{next(_NUMBERS)}@acme.example"
        self.owner = world.workspace(email)
        api_key = self.owner.ids["api_key"]
        token = self.owner("get_auth_tokens", apiKey=api_key)["authTokens"][0]["token"]
        self.tenant = Caller(world.app, {"x-service-api-key": api_key, "x-service-auth-token": token}, api_key=api_key)
        self.names = {"apiKey": api_key, "authToken": token, "email": email, "mark": mark}

    def prepare(self, operation: AnyOperation) -> None:
        """Creates the items of the operation's sample."""
        steps = list(SAMPLES[operation.name].get("before", ()))
        if operation.auth in NEEDS_API_KEY:
            steps = _FILE["world"] + steps
        for step in steps:
            name, data = next((name, data) for name, data in step.items() if name != "save")
            if name == "import_judgments":
                self.import_judgments(filled(data, self.names))
                continue
            answer = self.tenant(name, **filled(data, self.names))
            for saved, field in step.get("save", {}).items():
                self.names[saved] = answer[field]

    def caller(self, operation: AnyOperation) -> Caller:
        """A caller with the operation's credential headers."""
        if operation.auth is AuthLevel.W:
            return self.owner
        return self.tenant if operation.auth is AuthLevel.K else Caller(self.world.app, {})

    def data(self, operation: AnyOperation) -> dict[str, Any]:
        """The sample's ``data``."""
        data: dict[str, Any] = filled(SAMPLES[operation.name]["data"], self.names)
        return data

    def import_judgments(self, records: list[dict[str, Any]]) -> None:
        """Imports judgments, because no operation adds them."""
        parsed = [parse_judgment(record) for record in records]
        now = int(self.world.clock().timestamp() * 1000)
        list(
            import_judgments(
                self.world.engine, open_embedder(self.world.settings.embedder), self.names["apiKey"], parsed, now
            )
        )


def filled(value: Any, names: dict[str, str]) -> Any:
    """Replaces names in `value` by their values."""
    if isinstance(value, str):
        return names[value[1:]] if value.startswith("$") else value
    if isinstance(value, dict):
        return {key: filled(inner, names) for key, inner in value.items()}
    return [filled(inner, names) for inner in value] if isinstance(value, list) else value
