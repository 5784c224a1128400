"""``usher directory preview``: shows the objects of a source, their records, and what its read would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
import orjson

from app.commands.frame import CommandError, Invocation, UsherCommand, json_option, pass_invocation
from app.commands.progress import progress
from app.commands.screen import coloured, on_terminal, print_note, print_result, show_json, show_table
from app.foundation.clock import utc_now
from app.foundation.text import printable, quoted

if TYPE_CHECKING:
    from app.access.change_counts import ChangeCounts
    from app.directory.bounded import BoundedSource
    from app.directory.preview import PreviewedObject, PreviewedSource, PreviewFilter, RuleCounts, RuleResult
    from app.settings import Settings
    from app.sync.runs.preview import Preview

_DEFAULT_LIMIT = 5
"""Objects shown with --set or --id."""
_MAX_PROBLEMS = 20
"""Listed problems. Equal ones count once."""
_MAX_LENGTH = 60
"""Characters shown of a value."""
_MAX_VALUES = 5
"""Values shown of a list."""


@click.command(cls=UsherCommand)
@click.argument("name", metavar="SOURCE")
@click.option("--set", "set_", metavar="SET", default="", help="Show objects of this set (users, groups, a query).")
@click.option(
    "--id",
    "id_",
    metavar="ID",
    default="",
    help="Show this object, by its id, its location, or the value of an attribute.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=None,
    help=f"Show at most this many objects.  [default: {_DEFAULT_LIMIT} with --set or --id]",
)
@json_option
@pass_invocation
@click.pass_context
def preview(  # noqa: PLR0917 - click passes them by name
    context: click.Context, invocation: Invocation, name: str, set_: str, id_: str, limit: int | None, as_json: bool
) -> None:
    """Show the objects of a source and the records that its rules make.

    Reads SOURCE completely and changes nothing. Shows the objects that --set, --id and --limit select, with the record
    that each rule makes, or why it makes none. Then it shows the counts of each rule, and what the read would change of
    the records in force. With --id it shows the object only. Values whose names look like secrets are masked.

    Exit code 0: no problems, 1: the read is incomplete or empty, or would be refused.
    """
    from app.commands.bootstrap.databases import existing_store
    from app.commands.bootstrap.requirements import require_sources
    from app.directory.preview import PreviewFilter
    from app.directory.source import Verdict
    from app.sync.runs.preview import preview as preview_source

    settings = invocation.settings()
    require_sources(settings)
    max_objects = _DEFAULT_LIMIT if limit is None and (set_ or id_) else limit or 0
    sources, previewed = _previewed(settings, name, PreviewFilter(max_objects, set_, id_))
    with existing_store(settings) as engine, progress() as bar:
        bar.phase("reading", None)
        report = preview_source(
            sources, previewed, None if id_ else engine, guard=settings.directory.guard, clock=utc_now, progress=bar
        )
    if (id_ or set_) and not previewed.objects and report.verdict is not Verdict.FAILED:
        with_id, in_set = f" with the id {quoted(id_)}" if id_ else "", f" in the set {quoted(set_)}" if set_ else ""
        raise CommandError(f"{name} has nothing{with_id}{in_set}")
    if as_json:
        show_json(_to_json(name, previewed, report))
    else:
        _show(name, previewed, report, alone=bool(id_))
    context.exit(0 if report.verdict is Verdict.COMPLETE and not report.refused and not report.suspicion else 1)


def _previewed(settings: Settings, name: str, filter_: PreviewFilter) -> tuple[list[BoundedSource], PreviewedSource]:
    """All sources, and the previewed one among them. Raises ``CommandError``."""
    from app.commands.bootstrap.outgoing import configured_sources
    from app.directory.bounded import BoundedSource
    from app.directory.preview import PreviewedSource

    previewed: PreviewedSource | None = None
    sources = []
    for source in configured_sources(settings, spool=False):
        bounded = source if isinstance(source, BoundedSource) else BoundedSource(source, timeout=0)
        if source.name == name:
            if bounded.policy.only_pushed:
                raise CommandError(
                    f"source {name} only receives pushes; usher check --explain shows the push of a record"
                )
            previewed = PreviewedSource(bounded.source, filter_)
            bounded = BoundedSource(previewed, timeout=bounded.timeout, stop=bounded.stop, policy=bounded.policy)
        sources.append(bounded)
    if previewed is None:
        raise CommandError(
            f"no source is called {quoted(name)}; there are: {', '.join(source.name for source in sources)}"
        )
    return sources, previewed


def _show(name: str, previewed: PreviewedSource, report: Preview, *, alone: bool) -> None:
    from app.directory.source import Verdict

    for object_ in previewed.objects:
        _show_object(name, object_)
    if not alone:
        _show_counts(previewed)
        for group in report.problems[:_MAX_PROBLEMS]:
            print_note(str(group))
        if len(report.problems) > _MAX_PROBLEMS:
            print_note(f"… and {len(report.problems) - _MAX_PROBLEMS} other problems")
        print_result(_difference(report))
        if report.suspicion:
            print_note(f"{name}: {report.suspicion}")
    if report.verdict is not Verdict.COMPLETE:
        how = "could not be read" if report.verdict is Verdict.FAILED else "was read partially"
        print_note(f"{name} {how}: {report.reason}")


def _show_object(name: str, object_: PreviewedObject) -> None:
    id_ = object_.id
    print_result(printable(f"{name}, {object_.place}" if id_ is None else f"{name}, {id_.set}: {object_.place}"))
    if id_ is not None and id_.id != object_.place:
        print_result(f"  id       {printable(id_.id)}")
    if object_.value:
        print_result(f"  it       {_fields(object_.value)}")
    decided = {line.key for line in object_.results if line.wins}
    for line in object_.results:
        head = f"rule {line.rule}" if line.rule else "record"
        print_result(f"  {head:<8} {line.kind or 'object':<12} {_result(line, shared=line.key not in decided)}")
    if object_.omitted:
        print_result(f"  … and {object_.omitted:,} more")
    if not object_.results:
        print_result("  no rule reads this set")
    print_result()


def _result(line: RuleResult, *, shared: bool) -> str:
    """The record, or why there is none; the groups on the way to the object; and what of the record wins."""
    if line.record is None:
        text = f"malformed: {line.reason}" if line.malformed else f"none: {line.reason}"
        result = coloured(printable(text), "failed" if line.malformed else "default")
    else:
        result = _fields(line.record)
    through = f"   through {' > '.join(line.through)}" if line.through else ""
    provides = f"provides {', '.join(line.winning_fields)}" if shared and line.winning_fields else ""
    effect = "wins" if line.wins else provides
    return f"{result}{printable(through)}{f'   ({effect})' if effect else ''}"


def _fields(value: Mapping[str, object]) -> str:
    return printable(", ".join(f"{field} {_plain(content)}" for field, content in value.items()))


def _plain(value: object) -> str:
    if isinstance(value, str):
        text = value or '""'
    elif isinstance(value, list):
        more = f" … {len(value) - _MAX_VALUES} more" if len(value) > _MAX_VALUES else ""
        return f"[{', '.join(map(_plain, value[:_MAX_VALUES]))}{more}]"
    else:
        text = orjson.dumps(value).decode()
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 1]}…"


def _show_counts(previewed: PreviewedSource) -> None:
    if previewed.counts:
        headings: tuple[str, ...] = ("rule", "objects", "matched", "skipped", "malformed", "records")
        rows: list[tuple[str | int, ...]] = [
            (_title(counts), counts.objects, counts.matched, counts.skipped, _malformed(counts), counts.records)
            for counts in previewed.counts.values()
        ]
    else:
        headings = ("kind", "records")
        rows = list(previewed.kinds.items())
    show_table(headings, _aligned(rows, headings))


def _title(counts: RuleCounts) -> str:
    rule = counts.rule
    return f"{rule.number} {rule.set}{', each member' if rule.is_for_members else ''}: {rule.kind}"


def _malformed(counts: RuleCounts) -> int:
    return counts.malformed + counts.members_malformed


def _aligned(rows: Sequence[Sequence[str | int]], headings: Sequence[str]) -> list[list[str]]:
    """The rows as text. On a terminal, numbers are right-aligned."""
    if not on_terminal():
        return [[str(cell) for cell in row] for row in rows]
    texts = [[cell if isinstance(cell, str) else f"{cell:,}" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    return [[row[0], *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))] for row in texts]


def _difference(report: Preview) -> str:
    from app.access.refresh.losses import losses_in_words
    from app.directory.source import Verdict
    from app.sync.runs.directory_reads import guard_sentence

    if report.refused:
        return f"compared with the records in force: {coloured('refused', 'failed')}: {printable(report.refused)}"
    if not report.is_compared:
        return "compared with the records in force: there are none yet"
    if report.verdict is Verdict.FAILED:
        return "compared with the records in force: a failed read changes nothing"
    changes = changes_in_words(report.changes) or "no changes"
    losses = losses_in_words(report.losses)
    guard = f"would remove {losses}; {guard_sentence(report.guard)}" if losses else "would remove nothing"
    return f"compared with the records in force: {changes}; guard: passes, {guard}"


def changes_in_words(changes: Mapping[str, ChangeCounts]) -> str:
    """Added, updated and removed records of each kind. Empty if there are none."""
    return "; ".join(
        f"{kind} +{counts.added} ~{counts.updated} -{counts.removed}" for kind, counts in changes.items() if counts.any
    )


def _to_json(name: str, previewed: PreviewedSource, report: Preview) -> dict[str, object]:
    from app.commands.directory_wire import objects_from_losses

    return {
        "source": name,
        "verdict": report.verdict.value,
        "reason": report.reason,
        "objects": [_object_to_json(object_) for object_ in previewed.objects],
        "rules": [
            {
                "rule": int(counts.rule.number),
                "from": counts.rule.set,
                "kind": counts.rule.kind,
                "each": "members" if counts.rule.is_for_members else None,
                "objects": counts.objects,
                "matched": counts.matched,
                "skipped": counts.skipped,
                "malformed": _malformed(counts),
                "records": counts.records,
                "membersSkipped": counts.members_skipped,
            }
            for counts in previewed.counts.values()
        ],
        "records": dict(previewed.kinds),
        "problems": [
            {"sort": group.sort.value, "reason": group.reason, "places": list(group.places), "count": group.count}
            for group in report.problems
        ],
        "inForce": report.is_compared,
        "changes": {kind: counts for kind, counts in report.changes.items() if counts.any},
        "refused": report.refused,
        "odd": report.suspicion,
        "losses": objects_from_losses(report.losses),
        "guard": report.guard,
    }


def _object_to_json(object_: PreviewedObject) -> dict[str, object]:
    return {
        "set": None if object_.id is None else object_.id.set,
        "id": None if object_.id is None else object_.id.id,
        "place": object_.place,
        "it": dict(object_.value),
        "rules": [
            {
                "rule": int(line.rule) if line.rule.isdecimal() else line.rule or None,
                "kind": line.kind,
                "record": None if line.record is None else dict(line.record),
                "reason": line.reason,
                "malformed": line.malformed,
                "through": list(line.through),
                "wins": line.wins,
                "gives": list(line.winning_fields),
            }
            for line in object_.results
        ],
        "leftOff": object_.omitted,
    }
