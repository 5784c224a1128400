"""``usher directory preview``: a source's objects, what its rules make of them, and what its read would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click
import orjson

from app.commands.frame import CommandError, Invocation, UsherCommand, pass_invocation
from app.commands.screen import coloured, note, on_terminal, progress, say, show_json, show_table
from app.foundation.clock import utc_now
from app.foundation.text import printable, quoted

if TYPE_CHECKING:
    from app.directory.guarded import GuardedSource
    from app.directory.preview import Choice, Counts, PreviewedSource, RuleResult, Shown
    from app.directory.source import Source
    from app.settings import Settings
    from app.sync.runs.preview import Preview


_SHOWN = 5
"""So many objects are shown where somebody asks for some."""
_LISTED = 20
"""So many sorts of problem are listed."""
_WIDTH = 60
"""Characters of a value that are shown."""
_VALUES = 5
"""Values of a list that are shown."""


@click.command(cls=UsherCommand)
@click.argument("name", metavar="SOURCE")
@click.option("--set", "set_", metavar="SET", default="", help="Show objects of this set (users, groups, a query).")
@click.option(
    "--id", "id_", metavar="ID", default="", help="Show this object: its id, its place, or the text of an attribute."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    default=None,
    help=f"At most this many objects.  [default: {_SHOWN} of those asked for]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_invocation
@click.pass_context
def preview(  # noqa: PLR0917 - click passes them by name
    context: click.Context,
    invocation: Invocation,
    name: str,
    set_: str,
    id_: str,
    limit: int | None,
    as_json: bool,
) -> None:
    """Show what a source's rules make of its objects.

    Reads SOURCE as a whole and changes nothing. Shows the objects that --set, --id and --limit ask for, with the record
    that each rule makes of them or why it makes none; then what each rule came to, and what the read would change of
    what is in force. With --id the object alone. Values whose names look like secrets are masked.

    Exit code 0: all is well, 1: the read is not complete, gives nothing, or would be refused.
    """
    from app.commands.bootstrap.databases import store_as_it_is
    from app.commands.bootstrap.requirements import require_sources
    from app.directory.preview import Choice
    from app.directory.source import Verdict
    from app.sync.runs.preview import preview as preview_source

    settings = invocation.settings()
    require_sources(settings)
    shown = _SHOWN if limit is None and (set_ or id_) else limit or 0
    sources, previewed = _previewed(settings, name, Choice(shown, set_, id_))
    with store_as_it_is(settings) as engine, progress() as bar:
        bar.phase("reading", None)
        report = preview_source(
            sources,
            previewed,
            None if id_ else engine,
            guard=settings.directory.guard,
            clock=utc_now,
            progress=bar,
        )
    if (id_ or set_) and not previewed.shown and report.verdict is not Verdict.FAILED:
        with_id, in_set = f" with the id {quoted(id_)}" if id_ else "", f" in the set {quoted(set_)}" if set_ else ""
        raise CommandError(f"{name} has nothing{with_id}{in_set}")
    if as_json:
        show_json(_to_json(name, previewed, report))
    else:
        _show(name, previewed, report, alone=bool(id_))
    context.exit(0 if report.verdict is Verdict.COMPLETE and not report.refused and not report.odd else 1)


def _previewed(settings: Settings, name: str, choice: Choice) -> tuple[list[GuardedSource], PreviewedSource]:
    """All sources, the one that was asked for previewed. Raises ``CommandError``."""
    from app.commands.bootstrap.outside import configured_sources
    from app.directory.guarded import GuardedSource
    from app.directory.preview import PreviewedSource

    found: PreviewedSource | None = None
    sources = []
    for source in configured_sources(settings, spool=False):
        guarded = source if isinstance(source, GuardedSource) else GuardedSource(source, timeout=0)
        if source.name == name:
            if guarded.policy.only_pushed:
                raise CommandError(
                    f"source {name} is not read: what was pushed to it stays in force;"
                    " usher check --explain tells which push a record came with"
                )
            found = PreviewedSource(guarded.source, choice)
            guarded = GuardedSource(found, timeout=guarded.timeout, stop=guarded.stop, policy=guarded.policy)
        sources.append(guarded)
    if found is None:
        raise CommandError(f"no source is called {quoted(name)}; there are: {', '.join(map(_name, sources))}")
    return sources, found


def _name(source: Source) -> str:
    return source.name


# For people.


def _show(name: str, previewed: PreviewedSource, report: Preview, *, alone: bool) -> None:
    from app.directory.source import Verdict

    for shown in previewed.shown:
        _show_object(name, shown)
    if not alone:
        _show_counts(previewed)
        for group in report.problems[:_LISTED]:
            note(str(group))
        if len(report.problems) > _LISTED:
            note(f"… and {len(report.problems) - _LISTED} other sorts of problem")
        say(_difference(report))
        if report.odd:
            note(f"{name}: {report.odd}")
    if report.verdict is not Verdict.COMPLETE:
        how = "could not be read" if report.verdict is Verdict.FAILED else "was read in part"
        note(f"{name} {how}: {report.reason}")


def _show_object(name: str, shown: Shown) -> None:
    thing = shown.id
    say(printable(f"{name}, {shown.place}" if thing is None else f"{name}, {thing.set}: {shown.place}"))
    if thing is not None and thing.id != shown.place:
        say(f"  id       {printable(thing.id)}")
    if shown.value:
        say(f"  it       {_fields(shown.value)}")
    decided = {line.key for line in shown.lines if line.wins}
    for line in shown.lines:
        head = f"rule {line.rule}" if line.rule else "record"
        say(f"  {head:<8} {line.kind or 'object':<12} {_what_came(line, shares=line.key not in decided)}")
    if shown.left_off:
        say(f"  … and {shown.left_off:,} more")
    if not shown.lines:
        say("  no rule reads this set")
    say()


def _what_came(line: RuleResult, *, shares: bool) -> str:
    """The record or why none, through which groups, and whether it is the one that counts; where several share in that,
    what it gives."""
    if line.record is None:
        text = f"malformed: {line.reason}" if line.malformed else f"none: {line.reason}"
        told = coloured(printable(text), "failed" if line.malformed else "default")
    else:
        told = _fields(line.record)
    through = f"   through {' > '.join(line.through)}" if line.through else ""
    counts = "wins" if line.wins else f"gives {', '.join(line.gives)}" if shares and line.gives else ""
    return f"{told}{printable(through)}{f'   ({counts})' if counts else ''}"


def _fields(value: Mapping[str, object]) -> str:
    return printable(", ".join(f"{name} {_plain(one)}" for name, one in value.items()))


def _plain(value: object) -> str:
    if isinstance(value, str):
        text = value or '""'
    elif isinstance(value, list):
        more = f" … {len(value) - _VALUES} more" if len(value) > _VALUES else ""
        return f"[{', '.join(map(_plain, value[:_VALUES]))}{more}]"
    else:
        text = orjson.dumps(value).decode()
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _show_counts(previewed: PreviewedSource) -> None:
    if not previewed.counts:
        headings: tuple[str, ...] = ("kind", "records")
        show_table(headings, _in_columns([[kind, str(count)] for kind, count in previewed.kinds.items()], headings))
        return
    rows = [
        [_title(one), *map(str, (one.objects, one.matched, one.skipped, _malformed(one), one.records))]
        for one in previewed.counts.values()
    ]
    headings = ("rule", "objects", "matched", "skipped", "malformed", "records")
    show_table(headings, _in_columns(rows, headings))


def _title(counts: Counts) -> str:
    rule = counts.rule
    return f"{rule.number} {rule.set}{', each member' if rule.each else ''}: {rule.kind}"


def _malformed(counts: Counts) -> int:
    return counts.malformed + counts.members_malformed


def _in_columns(rows: Sequence[Sequence[str]], headings: Sequence[str]) -> Iterator[list[str]]:
    """The rows with their numbers, on a terminal, one below the other."""
    if not on_terminal():
        yield from map(list, rows)
        return
    grouped = [[row[0], *(f"{int(cell):,}" for cell in row[1:])] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *grouped, strict=True)]
    for row in grouped:
        yield [row[0], *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]


def _difference(report: Preview) -> str:
    from app.access.refresh.guard import losses_in_words
    from app.directory.source import Verdict
    from app.sync.runs.refresh import refused_would_be

    if report.refused:
        return f"against what is in force: {coloured('refused', 'failed')}: {printable(report.refused)}"
    if not report.in_force:
        return "against what is in force: nothing is in force yet"
    if report.verdict is Verdict.FAILED:
        return "against what is in force: a read that failed changes nothing"
    changes = {kind: one for kind, one in report.changes.items() if one.any}
    told = "; ".join(f"{kind} +{one.added} ~{one.updated} -{one.removed}" for kind, one in changes.items())
    losses = losses_in_words(report.losses)
    guard = f"{losses} would go; {refused_would_be(report.guard)}" if losses else "nothing would go"
    return f"against what is in force: {told or 'nothing would change'}; guard: passes, {guard}"


# For programs.


def _to_json(name: str, previewed: PreviewedSource, report: Preview) -> dict[str, object]:
    from app.sync.runs.refresh import objects_from_losses

    return {
        "source": name,
        "verdict": report.verdict.value,
        "reason": report.reason,
        "objects": [_object_to_json(one) for one in previewed.shown],
        "rules": [
            {
                "rule": int(one.rule.number),
                "from": one.rule.set,
                "kind": one.rule.kind,
                "each": "members" if one.rule.each else None,
                "objects": one.objects,
                "matched": one.matched,
                "skipped": one.skipped,
                "malformed": _malformed(one),
                "records": one.records,
                "membersSkipped": one.members_skipped,
            }
            for one in previewed.counts.values()
        ],
        "records": dict(previewed.kinds),
        "problems": [
            {"sort": one.sort.value, "reason": one.reason, "places": list(one.places), "count": one.count}
            for one in report.problems
        ],
        "inForce": report.in_force,
        "changes": {
            kind: {"added": one.added, "updated": one.updated, "removed": one.removed}
            for kind, one in report.changes.items()
            if one.any
        },
        "refused": report.refused,
        "odd": report.odd,
        "losses": objects_from_losses(report.losses),
        "guard": {"count": report.guard.count, "percent": report.guard.percent},
    }


def _object_to_json(shown: Shown) -> dict[str, object]:
    return {
        "set": None if shown.id is None else shown.id.set,
        "id": None if shown.id is None else shown.id.id,
        "place": shown.place,
        "it": dict(shown.value),
        "rules": [
            {
                "rule": int(line.rule) if line.rule.isdecimal() else line.rule or None,
                "kind": line.kind,
                "record": None if line.record is None else dict(line.record),
                "reason": line.reason,
                "malformed": line.malformed,
                "through": list(line.through),
                "wins": line.wins,
                "gives": list(line.gives),
            }
            for line in shown.lines
        ],
        "leftOff": shown.left_off,
    }
