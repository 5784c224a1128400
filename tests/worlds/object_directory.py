"""An in-memory connector: a directory of objects with a change log, read faults and rejected cursors."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml
from pydantic import TypeAdapter

from app.directory.connector import DirectoryObject, Objects, RequestedFields
from app.directory.mapping.rules import Rules
from app.directory.mapping.settings import RuleSettings
from app.directory.source import EVERYTHING, Answered, End, Gone, ObjectId, ReadRequest, Verdict

_RULES = TypeAdapter(tuple[RuleSettings, ...])


def rules_of(text: str, always: Mapping[str, frozenset[str]] | None = None) -> Rules:
    """Rules as in the settings. ``always``: set → the attributes that all of its objects have."""
    return Rules(_RULES.validate_python(yaml.safe_load(text)), always or {})


def thing(
    set_: str,
    id_: str,
    value: Mapping[str, object],
    members: tuple[str, ...] = (),
    names: tuple[str, ...] | None = None,
) -> DirectoryObject:
    """An object with the name ``set/id``."""
    name = f"{set_}/{id_}"
    return DirectoryObject(ObjectId(set_, id_), value, name, (name,) if names is None else names, members)


@dataclass
class ObjectDirectory:
    """The objects and their change log. A cursor is a position in the log."""

    held: dict[ObjectId, DirectoryObject] = field(default_factory=dict)
    log: list[DirectoryObject | Gone] = field(default_factory=list)
    breaks_after: int | None = None
    """The number of objects after which a read fails."""
    asked: list[tuple[RequestedFields, ReadRequest]] = field(default_factory=list)
    reports_changes: bool = True

    def put(self, *things: DirectoryObject) -> None:
        for one in things:
            if self.held.get(one.id) != one:
                self.held[one.id] = one
                self.log.append(one)

    def remove(self, set_: str, id_: str) -> None:
        gone = ObjectId(set_, id_)
        if self.held.pop(gone, None) is not None:
            self.log.append(Gone(gone))

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:
        self.asked.append((wanted, request))
        steps: list[DirectoryObject | Gone] = [*self.held.values()]
        answered = None
        if request.since and self.reports_changes:
            since = request.since.removeprefix("state ")
            if not since.isascii() or not since.isdigit() or request.since == since or int(since) > len(self.log):
                yield End(Verdict.FAILED, "no cursor of this directory", answered=Answered.CURSOR_REFUSED)
                return
            last = {step.object if isinstance(step, Gone) else step.id: step for step in self.log[int(since) :]}
            steps, answered = list(last.values()), Answered.CHANGES
        elif request.part is not None:
            requests = request.part.objects
            steps = [self.held.get(one, Gone(one)) for one in requests]
            answered = Answered.PART
        cursor = f"state {len(self.log)}" if self.reports_changes else ""
        for number, step in enumerate(steps):
            if number == self.breaks_after:
                yield End(Verdict.PARTIAL, "the connection was lost", answered=answered)
                return
            if isinstance(step, Gone) or step.id.set in wanted.attributes:
                yield step
        if self.breaks_after is not None and self.breaks_after >= len(steps):
            yield End(Verdict.FAILED, "the connection was lost", answered=answered)
            return
        yield End(Verdict.COMPLETE, cursor=cursor, answered=answered)
