"""Reads the backend back and corrects the ledger.

The rules: ``app/sync/apply/README.md``, "Verify".

It reads what the backend returns by page, stages it, and compares it in one transaction. If a read fails, the ledger
stays as it was.
"""

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine

from app.client.client import BackendClient
from app.contract.limits import IDS_PER_READ
from app.foundation.clock import Clock
from app.foundation.database.engine import reading, writing
from app.sync.apply.backend_reads import BackendReads, Container
from app.sync.apply.batch import in_parts
from app.sync.apply.capabilities import Capabilities
from app.sync.apply.containers import Containers
from app.sync.apply.gate import LOCK_LOST, Ending, Gate
from app.sync.apply.progress import Progress
from app.sync.ledger.items import USER_KINDS, Kind
from app.sync.ledger.ledger import increment_revision, mark_verified
from app.sync.ledger.observed import (
    Compared,
    Observed,
    adopt,
    clear_observed,
    confirm_observed,
    drop_missing,
    drop_organizations,
    find_foreign,
    forget_deleted,
    lack_folders,
    place_documents,
    place_others,
    restore_undeleted,
    stage_observed,
    store_digests,
    to_compare,
    update_observed,
)
from app.sync.ledger.settlement import is_still
from app.sync.plan.desired import compute_desired
from app.sync.plan.selection import Selection
from app.sync.plan.tables import drop_temporary

_STAGED_AT_ONCE = 5000

_KEY_FIELDS = frozenset(
    {"id", "organizationId", "folderId", "documentId", "userId", "organizationUserGroupId", "groupId"}
)
"""Fields of the key, which are not compared."""
"""Items that one transaction stores."""

_SIDE_BY_SIDE = 64
"""Containers whose users are in memory at the same time."""


class VerifyStoppedError(Exception):
    """The run ends before everything was read. The gate has the reason."""


@dataclass(slots=True)
class VerifyReport:
    """The findings of a verify, as numbers of items."""

    seen: int = 0
    missing: int = 0
    """In the ledger, but not in the backend."""
    changed: int = 0
    """Different from the ledger."""
    adopted: int = 0
    undeleted: int = 0
    """In the backend, although it had reported them as deleted."""
    foreign: dict[str, int] = field(default_factory=dict)
    """Neither in the ledger nor desired, by kind."""
    foreign_named: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    """Kinds that the backend does not return."""

    def numbers(self) -> dict[str, int]:
        return {
            "seen": self.seen,
            "missing": self.missing,
            "changed": self.changed,
            "adopted": self.adopted,
            "undeleted": self.undeleted,
            "foreign": sum(self.foreign.values()),
        }

    def to_wire(self) -> dict[str, Any]:
        """The entry of a run's report."""
        return {**self.numbers(), "foreign": self.foreign, "foreignNamed": self.foreign_named, "notRead": self.not_read}


@dataclass(kw_only=True)
class Verify:
    """Verifies one backend, once."""

    engine: Engine
    client: BackendClient
    ledger_id: int
    run_id: str | None
    """The run that is ``verifying``. None: no other run writes to these tables."""
    capabilities: Capabilities
    gate: Gate
    threads: int
    progress: Progress
    clock: Clock

    def __post_init__(self) -> None:
        self._reads = BackendReads(self.client, self.capabilities, before_call=self._stop_if_ended)
        self._containers = Containers(self.engine, self.ledger_id)
        self._report = VerifyReport()

    def run(self, selection: Selection) -> VerifyReport:
        """Reads what is selected and corrects the ledger. Raises ``ClientError`` and ``VerifyStoppedError``."""
        with self._writing() as connection:
            clear_observed(connection, self.ledger_id)
        try:
            if selection.user_ids:
                self._read_users(selection)
            else:
                self._read_everything(selection)
            with self._writing() as connection:
                self._correct(connection, selection)
        finally:
            with suppress(VerifyStoppedError), self._writing() as connection:
                clear_observed(connection, self.ledger_id)
        self._report.not_read = sorted(kind.value for kind in self._reads.unread)
        return self._report

    def _read_everything(self, selection: Selection) -> None:
        self._stage(self._reads.organizations(selection.organization_ids or None))
        for organization_id in self._containers.organizations(selection):
            self._stage(self._reads.folders(organization_id))
            self._stage(self._reads.documents(organization_id))
            self._stage(self._reads.document_users(organization_id, None))
            self._stage_users([Container(Kind.ORGANIZATION_USER, organization_id)], None)
            folders = self._containers.folders(organization_id, were_read=Kind.FOLDER not in self._reads.unread)
            self._place_documents(organization_id, folders)
            self._stage_users(folders, None)
            self._stage_users(self._containers.groups(organization_id), None)

    def _read_users(self, selection: Selection) -> None:
        """Reads the entries of users in the containers where the directory or the ledger has, or had, entries."""
        containers = self._containers.of_users(selection, clock=self.clock)
        for user_ids in in_parts(selection.user_ids, IDS_PER_READ):
            for container in containers:
                if container.kind is Kind.DOCUMENT_USER:
                    self._stage(self._reads.document_users(container.organization_id, user_ids))
            self._stage_users(
                [container for container in containers if container.kind is not Kind.DOCUMENT_USER], user_ids
            )

    def _stage(self, items: Iterable[Observed]) -> None:
        for chunk in in_parts(items, _STAGED_AT_ONCE):
            with self._writing() as connection:
                stage_observed(connection, self.ledger_id, chunk)
            self._report.seen += len(chunk)
            self.progress.advance(len(chunk))

    def _place_documents(self, organization_id: str, folders: Iterable[Container]) -> None:
        """Reads documents by folder, several folders concurrently, if the backend did not return their folder."""
        with reading(self.engine) as connection:
            if not lack_folders(connection, self.ledger_id, organization_id):
                return
        with ThreadPoolExecutor(self.threads, thread_name_prefix="verify") as pool:
            for chunk in in_parts((folder.container_id for folder in folders), _SIDE_BY_SIDE):
                found = list(pool.map(lambda folder_id: self._reads.documents_in(organization_id, folder_id), chunk))
                with self._writing() as connection:
                    for folder_id, document_ids in zip(chunk, found, strict=True):
                        place_documents(connection, self.ledger_id, organization_id, folder_id, document_ids)
        with self._writing() as connection:
            place_others(connection, self.ledger_id, organization_id)

    def _stage_users(self, containers: Iterable[Container], user_ids: list[str] | None) -> None:
        """Reads several containers concurrently."""
        with ThreadPoolExecutor(self.threads, thread_name_prefix="verify") as pool:
            for chunk in in_parts(containers, _SIDE_BY_SIDE):
                for users in pool.map(lambda container: list(self._reads.users(container, user_ids)), chunk):
                    self._stage(users)

    def _correct(self, connection: Connection, selection: Selection) -> None:
        """Brings the ledger in line with what was read."""
        report, ledger_id = self._report, self.ledger_id
        condition, ids = selection.condition("l.organization_id", "l.item_id"), selection.parameters
        kinds = USER_KINDS if selection.user_ids else tuple(Kind)
        if not selection.user_ids:
            report.missing += drop_organizations(connection, ledger_id, condition, ids)
        for kind in kinds:
            if kind not in self._reads.unread:
                report.missing += drop_missing(connection, ledger_id, kind.value, condition, ids)
        report.changed += update_observed(connection, ledger_id)
        compute_desired(connection, ledger_id=ledger_id, now=self.clock(), selection=selection)
        report.adopted = adopt(connection, ledger_id)
        report.undeleted = restore_undeleted(connection, ledger_id)
        for kind in kinds:
            # Kinds that were not read keep theirs, except groups: they can be neither read nor deleted.
            if kind not in self._reads.unread or kind is Kind.GROUP:
                forget_deleted(connection, ledger_id, kind.value, condition, ids)
        drop_temporary(connection)
        report.changed += self._compare_fields(connection)
        confirm_observed(connection, ledger_id)
        report.foreign, report.foreign_named = find_foreign(connection, ledger_id)
        increment_revision(connection, ledger_id)
        if selection.is_everything:
            mark_verified(connection, ledger_id, self.clock())

    def _compare_fields(self, connection: Connection) -> int:
        """Stores the digests of the observed fields, and returns how many items differ from the ledger."""
        changed = 0
        for kind in Kind:
            for page in to_compare(connection, self.ledger_id, kind.value):
                digests = [(item, _observed_digest(item)) for item in page]
                changed += sum(bool(item.ledger_digest) and not digest for item, digest in digests)
                store_digests(connection, self.ledger_id, digests)
        return changed

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction, unless another process took over: the tables belong to its verify then."""
        with writing(self.engine) as connection:
            yield connection
            # At the end, because the check locks the run, which an operator may cancel meanwhile.
            if self.run_id is not None and not is_still(connection, self.run_id, "verifying"):
                self.gate.end(Ending(LOCK_LOST))
                raise VerifyStoppedError

    def _stop_if_ended(self) -> None:
        if not self.gate.is_open():
            raise VerifyStoppedError


def _observed_digest(item: Compared) -> str:
    """The digest of the item's fields in the backend: that of the desired fields, or empty if they differ."""
    return item.desired_digest if _same_fields(item.observed_payload, item.desired_payload) else ""


def _same_fields(observed_payload: str, desired_payload: str) -> bool:
    """Whether every field that Usher sends has the same value in the backend.

    Further fields are ignored. So are fields that the backend does not return: they would be sent after every verify.
    """
    observed = json.loads(observed_payload)
    desired = json.loads(desired_payload)
    return all(
        observed[name] == value for name, value in desired.items() if name not in _KEY_FIELDS and name in observed
    )
