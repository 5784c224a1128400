"""Reads the backend back and corrects the ledger.

The rules: ``app/sync/apply/README.md``, "Verify".

Everything that the backend can be asked about is read by page and staged, then compared in one transaction. If reading
fails in the middle, the ledger stays as it was.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine

from app.client.capabilities import Capabilities
from app.client.client import BackendClient
from app.contract.limits import IDS_PER_READ
from app.foundation.clock import Clock
from app.foundation.database.engine import writing
from app.sync.apply import observations
from app.sync.apply.backend_reads import BackendReads, Container, in_parts
from app.sync.apply.containers import Containers, ids_of, within
from app.sync.apply.gate import Gate
from app.sync.apply.progress import Progress
from app.sync.ledger.items import USER_KINDS, Kind
from app.sync.ledger.ledger import mark_verified, move_on
from app.sync.ledger.observed import (
    Observed,
    adopt,
    clear_observed,
    confirm_seen,
    drop_missing,
    drop_organizations,
    foreign,
    forget_deleted,
    set_digests,
    stage,
    take_back,
    take_in_seen,
    to_compare,
)
from app.sync.plan.desired import compute, drop
from app.sync.plan.selection import Selection

_STAGED_AT_ONCE = 5000
_SIDE_BY_SIDE = 64
"""Containers whose users are read before any of them is staged: what bounds the memory."""


class VerifyStoppedError(Exception):
    """The run ends before everything was read; the gate says why."""


@dataclass(slots=True)
class VerifyReport:
    """What a verify found."""

    seen: int = 0
    """Items that were read back."""
    missing: int = 0
    """Ours, and not there any more."""
    changed: int = 0
    """Ours, and not as we left them."""
    adopted: int = 0
    undeleted: int = 0
    """There, although the backend had said that they are deleted."""
    foreign: dict[str, int] = field(default_factory=dict)
    """Never ours and not wanted, by kind."""
    foreign_named: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    """Kinds that the backend does not tell about."""

    def numbers(self) -> dict[str, int]:
        """How many items were seen, and what is wrong with how many."""
        return {
            "seen": self.seen,
            "missing": self.missing,
            "changed": self.changed,
            "adopted": self.adopted,
            "undeleted": self.undeleted,
            "foreign": sum(self.foreign.values()),
        }

    def to_wire(self) -> dict[str, object]:
        """The form in which a run's report holds it."""
        named: dict[str, object] = {
            "foreign": self.foreign,
            "foreignNamed": self.foreign_named,
            "notRead": self.not_read,
        }
        return {**self.numbers(), **named}


class Verify:
    """Reads one backend back, once."""

    def __init__(
        self,
        engine: Engine,
        client: BackendClient,
        *,
        ledger_id: int,
        capabilities: Capabilities,
        gate: Gate,
        threads: int,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._engine = engine
        self._ledger_id = ledger_id
        self._gate = gate
        self._threads = threads
        self._progress = progress
        self._clock = clock
        self._reads = BackendReads(client, capabilities, before_call=self._stop_if_ended)
        self._containers = Containers(engine, ledger_id=ledger_id)
        self._report = VerifyReport()

    def run(self, selection: Selection) -> VerifyReport:
        """Reads what is selected and mends the ledger.

        Raises ``ClientError`` when the backend does not answer, ``VerifyStoppedError`` when the run is to end.
        """
        with writing(self._engine) as connection:
            clear_observed(connection, self._ledger_id)
        try:
            if selection.user_ids:
                self._read_users(selection)
            else:
                self._read_everything(selection)
            with writing(self._engine) as connection:
                self._mend(connection, selection)
        finally:
            with writing(self._engine) as connection:
                clear_observed(connection, self._ledger_id)
        self._report.not_read = sorted(kind.value for kind in self._reads.unread)
        return self._report

    def _read_everything(self, selection: Selection) -> None:
        self._stage(self._reads.organizations(selection.organization_ids))
        for organization_id in self._containers.organizations(selection):
            self._stage(self._reads.folders(organization_id))
            self._stage(self._reads.documents(organization_id))
            self._stage(self._reads.document_users(organization_id, None))
            self._stage_users([Container(Kind.ORGANIZATION_USER, organization_id)], None)
            folders = self._containers.folders(organization_id, were_read=Kind.FOLDER not in self._reads.unread)
            self._stage_users(folders, None)
            self._stage_users(self._containers.groups(organization_id), None)

    def _read_users(self, selection: Selection) -> None:
        """Only what hangs on some users, and only where the directory has something of theirs, or the ledger has or
        had."""
        containers = self._containers.of_users(selection, clock=self._clock)
        for user_ids in in_parts(selection.user_ids, IDS_PER_READ):
            for container in containers:
                if container.kind is Kind.DOCUMENT_USER:
                    self._stage(self._reads.document_users(container.organization_id, user_ids))
            self._stage_users([one for one in containers if one.kind is not Kind.DOCUMENT_USER], user_ids)

    def _stage(self, items: Iterable[Observed]) -> None:
        for chunk in in_parts(items, _STAGED_AT_ONCE):
            with writing(self._engine) as connection:
                stage(connection, self._ledger_id, chunk)
            self._report.seen += len(chunk)
            self._progress.advance(len(chunk))

    def _stage_users(self, containers: Iterable[Container], user_ids: list[str] | None) -> None:
        """Several containers are read side by side."""
        with ThreadPoolExecutor(self._threads, thread_name_prefix="verify") as pool:
            for some in in_parts(containers, _SIDE_BY_SIDE):
                for found in pool.map(lambda one: list(self._reads.users(one, user_ids)), some):
                    self._stage(found)

    def _mend(self, connection: Connection, selection: Selection) -> None:
        report, ledger_id = self._report, self._ledger_id
        condition, ids = within(selection), ids_of(selection)
        if not selection.user_ids:
            report.missing += drop_organizations(connection, ledger_id, condition, ids)
        for kind in USER_KINDS if selection.user_ids else Kind:
            if kind not in self._reads.unread:
                report.missing += drop_missing(connection, ledger_id, kind.value, condition, ids)
        report.changed += take_in_seen(connection, ledger_id)
        compute(connection, ledger_id=ledger_id, now=self._clock(), selection=selection)
        report.adopted = adopt(connection, ledger_id)
        report.undeleted = take_back(connection, ledger_id)
        for kind in USER_KINDS if selection.user_ids else Kind:
            # Of what could not be read nothing is known. Groups never can be, and are never deleted either.
            if kind not in self._reads.unread or kind is Kind.GROUP:
                forget_deleted(connection, ledger_id, kind.value, condition, ids)
        drop(connection)
        for kind in Kind:
            for page in to_compare(connection, ledger_id, kind.value):
                found = [
                    (
                        item,
                        item.wanted_digest
                        if observations.same_fields(item.observed_payload, item.wanted_payload)
                        else "",
                    )
                    for item in page
                ]
                report.changed += sum(bool(item.held_digest) and not digest for item, digest in found)
                set_digests(connection, ledger_id, found)
        confirm_seen(connection, ledger_id)
        report.foreign, report.foreign_named = foreign(connection, ledger_id)
        move_on(connection, ledger_id)
        if selection.is_everything:
            mark_verified(connection, ledger_id, self._clock())

    def _stop_if_ended(self) -> None:
        """Called before every call."""
        if not self._gate.is_open():
            raise VerifyStoppedError
