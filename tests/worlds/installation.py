"""Usher installations with reads that fail in the middle, and with an application that pushes changes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine

from app.access.decision.decide import DecisionPolicy, PlainQuestion, decide
from app.access.refresh.pushes import NumberedPush, apply_push
from app.access.sql_view import opened_sql_view
from app.directory.bounded import BoundedSource
from app.directory.casting import record_from_object
from app.directory.configured import source_from_settings, sources_from_settings
from app.directory.pushes import record_of_key
from app.directory.settings import DirectorySettings
from app.directory.source import EVERYTHING, End, Reading, ReadRequest, Source, Verdict
from app.sync.plan.selection import Selection
from app.sync.runs.directory_reads import ReadOptions, RefreshReport, read_directory
from app.sync.runs.source_reads import policy_of
from tests.worlds.application import DOCUMENTS, USERS, Application, source_settings
from tests.worlds.tcp_proxy import TcpProxy

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
LEVELS = {None: 0, "viewer": 1, "editor": 2}

_Key = TypeVar("_Key")

RecordState = tuple[dict[str, Any], bool]
"""A record or a key, and whether it exists."""


class Fault(Enum):
    """The fault in the middle of a read."""

    NONE = "none"
    CUT = "it ends as failed"
    RAISES = "it raises"
    PARTIAL = "the rest is missing"
    MEANWHILE = "no fault: something else happens"


@dataclass
class Breaking:
    """A source whose reads fail after a complete snapshot."""

    source: Source
    fault: Fault = Fault.NONE
    share: float = 0.5
    meanwhile: Callable[[], object] = field(default=lambda: None)

    @property
    def name(self) -> str:
        return self.source.name

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        fault, self.fault = self.fault, Fault.NONE
        *steps, end = self.source.read(request)
        assert isinstance(end, End)
        until = round(len(steps) * self.share)
        if fault is Fault.NONE:
            until = len(steps)
        yield from steps[:until]
        if fault is Fault.RAISES:
            raise RuntimeError(fault.value)
        if fault is Fault.CUT:
            yield End(Verdict.FAILED, fault.value, answered=end.answered)
            return
        if fault is Fault.PARTIAL:
            yield End(Verdict.PARTIAL, fault.value, answered=end.answered)
            return
        if fault is Fault.MEANWHILE:
            self.meanwhile()
        yield from steps[until:]
        yield end


class Reader:
    """An Usher with failing reads, which also receives pushes."""

    def __init__(self, engine: Engine, sources: Sequence[Mapping[str, Any]], spool: Path | None = None) -> None:
        self.engine = engine
        self._settings = DirectorySettings.model_validate({"sources": sources, "guard": {"percent": 100}})
        self.breaking = [Breaking(source_from_settings(one, spool)) for one in self._settings.sources]
        guarded = sources_from_settings(self._settings)
        self._sources: list[Source] = [
            BoundedSource(one, timeout=60, policy=policy_of(other))
            for one, other in zip(self.breaking, guarded, strict=True)
        ]
        self._others = guarded
        self.now = NOW
        self._sequence = 0

    def read(self, *, full: bool = False, selection: Selection | None = None, elsewhere: bool = False) -> RefreshReport:
        """A read; ``elsewhere``: by another node, concurrently."""
        self.now += timedelta(seconds=1)
        sources = self._others if elsewhere else self._sources
        full_sources = [one.name for one in sources] if full else []
        return read_directory(
            self.engine,
            sources,
            ReadOptions(full=full_sources, selection=selection),
            clock=lambda: self.now,
            guard=self._settings.guard,
        )

    def push(self, source: str, *records: RecordState) -> dict[str, Any]:
        """The response to a push to a source."""
        self._sequence += 1
        pushed = NumberedPush(
            source=source,
            sequence=self._sequence,
            previous_sequence=None,
            upserts=[record_from_object(one)[0] for one, is_there in records if is_there],
            removals=[record_of_key(one) for one, is_there in records if not is_there],
            by="test",
        )
        names = [one.name for one in self._settings.sources]
        return apply_push(self.engine, pushed, configured=names, only_pushed=False, clock=lambda: self.now)

    def decided(self, users: Sequence[str], documents: Sequence[str]) -> dict[tuple[str, str], str]:
        """(user, document) → the role that Usher decides."""
        requests = [
            PlainQuestion(user_id=user, type="document", resource_id=document, organization_id="acme")
            for user in users
            for document in documents
        ]
        with opened_sql_view(self.engine) as view:
            decisions = [(one, decide(view, one, self.now, DecisionPolicy())) for one in requests]
        return {
            (one.user_id, one.resource_id): decision.access_role.value
            for one, decision in decisions
            if decision.access_role is not None
        }


def beyond(allowed: Mapping[_Key, str], real: Mapping[_Key, str]) -> list[tuple[_Key, str]]:
    """The users with more access than expected."""
    return [(who, role) for who, role in allowed.items() if LEVELS[role] > LEVELS[real.get(who)]]


class Installation(Reader):
    """The application, and an Usher that reads its database and receives its pushes."""

    def __init__(
        self, engine: Engine, application: Application, url: str, *, by_rules: bool, between: TcpProxy | None
    ) -> None:
        """``between``: the proxy through which the database is read."""
        super().__init__(engine, source_settings(url, by_rules=by_rules, token="p" * 30))
        self.between = between
        self.application = application

    def meanwhile(self, happens: Callable[[], object]) -> None:
        """Runs an action in the middle of the next read, after its snapshot."""
        breaking = self.breaking[0]
        breaking.fault, breaking.meanwhile = Fault.MEANWHILE, happens

    def allowed(self) -> dict[tuple[str, str], str]:
        """(user, document) → the role that Usher decides."""
        return self.decided(USERS, DOCUMENTS)

    def too_much(self) -> list[tuple[tuple[str, str], str]]:
        """The users with more access than the application's tables allow."""
        return beyond(self.allowed(), self.application.allowed())
