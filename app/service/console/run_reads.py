"""What a run read: the sources that it did not read completely, and the records that its sources lost."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from sqlalchemy import Connection

from app.access.kinds import KINDS
from app.directory.source import Verdict
from app.foundation.text import counted
from app.service.console.formatting import FOLDERS
from app.sync.ledger.items import Kind, noun_of
from app.sync.plan.listing import held_reasons
from app.sync.runs.history import recent_runs
from app.sync.runs.run import Run, RunStatus

_HELD_BEFORE = 20
"""The runs before a held run that are compared with it."""
# Reports of runs store sentences. Pages shorten them, and name the kinds as operators do.
_LOSS = re.compile(r"source (.+) takes away (.+); a read is refused above [^;]*")
_RECORDS = re.compile(rf"\b({'|'.join(KINDS)}) records?\b")
_GONE = re.compile(r"goes along with (\w+) |the (\w+) is no longer in the directory")
"""The reason of a delete that is due because another record is gone."""
_REASONS_READ = 1_000
"""If a run holds more deletes, their reasons are not read."""
_RECORDS_BEHIND: Mapping[str, frozenset[str]] = {
    Kind.ORGANIZATION_USER: frozenset({"membership", "user"}),
    Kind.GROUP_MEMBER: frozenset({"groupMember", "membership", "user"}),
    Kind.FOLDER_USER: frozenset({"grant", "group", "groupMember", "membership", "user"}),
    Kind.DOCUMENT_USER: frozenset({"grant", "group", "groupMember", "membership", "user"}),
}
"""Kind of an item → the kinds of the records whose loss deletes it, unless its reason names another record. An item of
another kind has a record of its own kind."""


class SourceLoss(NamedTuple):
    """The records that a read removed from a source."""

    source: str
    """Empty: not known."""
    sentence: str


class UnreadSource(NamedTuple):
    verdict: str
    name: str
    reason: str
    """Without the name and the advice."""


@dataclass(frozen=True, slots=True)
class UnreadSources:
    lines: Sequence[UnreadSource]
    """The failed ones first."""

    @property
    def failed(self) -> bool:
        return any(source.verdict == Verdict.FAILED.value for source in self.lines)

    @property
    def worst(self) -> str:
        return (Verdict.FAILED if self.failed else Verdict.PARTIAL).value

    @property
    def short(self) -> str:
        """The numbers, as ``incomplete_words``."""
        return incomplete_words([source.verdict for source in self.lines])


def unread_sources(run: Run) -> UnreadSources:
    """The sources of a run's report that were not read completely."""
    return UnreadSources(
        [
            UnreadSource(verdict.value, str(read["name"]), _short_reason(str(read["name"]), str(read["reason"])))
            for verdict in (Verdict.FAILED, Verdict.PARTIAL)
            for read in run.report.get("sources", ())
            if read["verdict"] == verdict.value
        ]
    )


def _short_reason(name: str, reason: str) -> str:
    return _with_nouns(FOLDERS.sub("", reason.partition("; ")[0].removeprefix(f"{name}: ")))


def incomplete_words(verdicts: Sequence[str]) -> str:
    """``1 source failed, 2 partial``. It is empty if every read is complete."""
    failed, partial = verdicts.count(Verdict.FAILED.value), verdicts.count(Verdict.PARTIAL.value)
    if failed and partial:
        return f"{counted(failed, 'source')} failed, {partial:,} partial"
    if failed:
        return f"{counted(failed, 'source')} failed"
    return f"{counted(partial, 'source')} partial" if partial else ""


def own_losses(connection: Connection, held: Run) -> list[str]:
    """The records that the run's read removed from sources, of the kinds behind its held deletes: ``source hr lost
    897 of its 5,036 users``."""
    lost = _losses(held, _kinds_behind(connection, held)) if held.report.get("losses") else []
    return [loss.sentence for loss in lost]


def losses_behind(connection: Connection, held: Run) -> list[tuple[Run, list[SourceLoss]]]:
    """The reads that lost what this run would delete: its own, and those of the held runs before it."""
    before = recent_runs(connection, _HELD_BEFORE, held.run_id, previews=False)
    chain = (held, *takewhile(lambda run: run.status is RunStatus.HELD, before))
    losing = [run for run in chain if run.report.get("losses")]
    kinds = _kinds_behind(connection, held) if losing else ()
    return [(run, lost) for run in losing if (lost := _losses(run, kinds))]


def _losses(run: Run, kinds: Collection[str]) -> list[SourceLoss]:
    """The losses in a run's report, only of records of these kinds."""
    lost = []
    for sentence in map(str, run.report.get("losses", ())):
        match = _LOSS.fullmatch(sentence)
        if match is None:
            lost.append(SourceLoss("", sentence))
        elif parts := [part for part in match[2].split(" and ") if _lost_kind(part) in kinds]:
            words = _with_nouns(" and ".join(parts)).replace(" of ", " of its ")
            lost.append(SourceLoss(match[1], f"source {match[1]} lost {words}"))
    return lost


def _lost_kind(loss: str) -> str | None:
    """The kind of the records. None: they still exist, and are no longer disabled."""
    match = _RECORDS.search(loss)
    return None if match is None or "disabled " in loss else match[1]


def _kinds_behind(connection: Connection, held: Run) -> Collection[str]:
    """The kinds of the records whose loss made the held deletes due. All, if they are too many, or not known."""
    reasons = [] if held.plan_id is None else held_reasons(connection, held.plan_id, _REASONS_READ)
    if len(reasons) in {0, _REASONS_READ}:
        return KINDS.keys()
    return {kind for item_kind, reason in reasons for kind in _kinds_of(item_kind, reason)}


def _kinds_of(item_kind: str, reason: str) -> Collection[str]:
    match = _GONE.match(reason)
    return _RECORDS_BEHIND.get(item_kind, {item_kind}) if match is None else {match[1] or match[2]}


def held_before(connection: Connection, held: Run) -> Run | None:
    """The run before of the same scope, if it held as many deletes of each kind and organization, and nobody has
    approved or discarded them."""
    before = recent_runs(connection, _HELD_BEFORE, held.run_id, previews=False)
    last = next((run for run in before if run.plan_id is not None and run.selection == held.selection), None)
    if last is None or last.status is not RunStatus.HELD:
        return None
    return last if _held_numbers(last) == _held_numbers(held) else None


def _held_numbers(run: Run) -> list[tuple[object, ...]]:
    return [
        tuple(hold.get(name) for name in ("kind", "organizationId", "deletes")) for hold in run.report.get("held", ())
    ]


def _with_nouns(sentence: str) -> str:
    """The sentence with ``users`` for ``user records``."""
    return _RECORDS.sub(lambda kind: noun_of(kind[1]), sentence)
