"""The bodies of pushes and of their answers."""

from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from app.directory.pushes import MAX_ITEMS

LINES_TYPES = ("application/jsonl", "application/x-ndjson")
"""The media types of JSON Lines."""

_Count = Annotated[int, Field(ge=0)]
_Items = Annotated[list[dict[str, Any]], Field(max_length=MAX_ITEMS)]


@with_config(ConfigDict(extra="forbid"))
class PushWire(TypedDict):
    """What changed in a source: records and keys, applied all or not at all."""

    sequence: Annotated[int, Field(ge=1, description="Higher with each push.")]
    previousSequence: NotRequired[
        Annotated[_Count | None, Field(description="That of the push before; refused if another one was applied last.")]
    ]
    upsert: NotRequired[Annotated[_Items, Field(description="Records, as in a directory file.")]]
    remove: NotRequired[Annotated[_Items, Field(description="Keys of records: kind and ids.")]]


class LineReason(TypedDict):
    """A record, by its position, and what is wrong or odd about it."""

    index: _Count
    reason: str


class PushCounts(TypedDict, total=False):
    """Records of a push by what it did to them."""

    added: _Count
    updated: _Count
    unchanged: _Count
    removed: _Count
    absent: _Count


class PushAnswer(TypedDict):
    """The answer to a push."""

    revision: NotRequired[_Count]
    sequence: Annotated[_Count, Field(description="That of the last push that was applied.")]
    counts: NotRequired[PushCounts]
    leftOut: NotRequired[
        Annotated[list[LineReason], Field(description="Records without effect, or that another one replaces.")]
    ]


class RecordCounts(TypedDict):
    """Records of a kind by what a read did to them."""

    added: _Count
    updated: _Count
    removed: _Count


class SourceAnswer(TypedDict):
    """The answer to everything that a source contains."""

    revision: _Count
    records: _Count
    changes: Annotated[dict[str, RecordCounts], Field(description="By kind.")]
    dangling: Annotated[_Count, Field(description="Records that are kept and refer to something unknown.")]
    leftOut: Annotated[list[LineReason], Field(description="The first lines, from 1, whose records have no effect.")]
    remarks: Annotated[list[LineReason], Field(description="Lines that are odd, but used.")]


_Time = Annotated[str | None, Field(json_schema_extra={"format": "date-time"})]


class SourceStateWire(TypedDict):
    """How far a source has come."""

    source: str
    sequence: _Count
    records: _Count
    dangling: _Count
    pushed: _Time
    read: _Time
    ageSeconds: float | None
