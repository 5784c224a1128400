"""What a run read: the sources that it did not read completely, and the records that its sources lost."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from sqlalchemy import Connection

from app.access.kinds import KINDS
from app.directory.source import Verdict
from app.foundation.text import counted
from app.service.console.formatting import FOLDERS
from app.sync.ledger.items import noun_of
from app.sync.runs.history import recent_runs
from app.sync.runs.run import Run, RunStatus

_HELD_BEFORE = 20
"""The runs before a held run in which the cause of its deletes is searched."""
# Reports of runs store sentences. Pages shorten them, and name the kinds as operators do.
_LOSS = re.compile(r"source (.+) takes away (.+); a read is refused above [^;]*")
_RECORDS = re.compile(rf"\b({'|'.join(KINDS)}) records?\b")


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


def losses(run: Run) -> list[str]:
    """The records that the run's read removed from sources: ``workday lost 897 of 5,036 users``."""
    sentences = map(str, run.report.get("losses", ()))
    return [
        f"{match[1]} lost {_with_nouns(match[2])}" if (match := _LOSS.fullmatch(sentence)) else sentence
        for sentence in sentences
    ]


def losses_behind(connection: Connection, held: Run) -> list[tuple[Run, list[str]]]:
    """The reads that lost what this run would delete: its own, and those of the held runs before it."""
    before = recent_runs(connection, _HELD_BEFORE, held.run_id, previews=False)
    chain = (held, *takewhile(lambda run: run.status is RunStatus.HELD, before))
    return [(run, lost) for run in chain if (lost := losses(run))]


def held_before(connection: Connection, held: Run) -> Run | None:
    """The run before of the same scope, if it held as many deletes of each kind and organization."""
    before = recent_runs(connection, _HELD_BEFORE, held.run_id, previews=False)
    last = next((run for run in before if run.plan_id is not None and run.selection == held.selection), None)
    return last if last is not None and not losses(held) and _held_numbers(last) == _held_numbers(held) else None


def _held_numbers(run: Run) -> list[tuple[object, ...]]:
    return [
        tuple(hold.get(name) for name in ("kind", "organizationId", "deletes")) for hold in run.report.get("held", ())
    ]


def _with_nouns(sentence: str) -> str:
    """The sentence with ``users`` for ``user records``."""
    return _RECORDS.sub(lambda kind: noun_of(kind[1]), sentence)
