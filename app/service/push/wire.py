"""Types of the request and response bodies of ``/directory/NAME``, for OpenAPI and mypy.

Nothing is validated with them.
"""

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
    """Changes of a source: records and keys. All of them are applied, or none."""

    sequence: Annotated[int, Field(ge=1, description="Higher with each push.")]
    previousSequence: NotRequired[
        Annotated[
            _Count | None,
            Field(
                description="The sequence of the last applied push, if you know it. If it differs, this push gets 409."
            ),
        ]
    ]
    upsert: NotRequired[Annotated[_Items, Field(description="Records, as in a directory file.")]]
    remove: NotRequired[Annotated[_Items, Field(description="Keys of records: kind and ids.")]]


class LineReason(TypedDict):
    """The position of a record, and a problem or remark."""

    index: _Count
    reason: str


class PushCounts(TypedDict, total=False):
    """Numbers of records by the effect of a push."""

    added: _Count
    updated: _Count
    unchanged: _Count
    removed: _Count
    absent: _Count


class PushAnswer(TypedDict):
    """The response to a push."""

    revision: NotRequired[_Count]
    sequence: Annotated[_Count, Field(description="The sequence of the last applied push.")]
    counts: NotRequired[PushCounts]
    leftOut: NotRequired[
        Annotated[list[LineReason], Field(description="Records without effect, or that another one replaces.")]
    ]


class RecordCounts(TypedDict):
    """Numbers of records of a kind by the effect of a read."""

    added: _Count
    updated: _Count
    removed: _Count


class UploadAnswer(TypedDict):
    """The response to an upload."""

    revision: _Count
    records: _Count
    changes: Annotated[dict[str, RecordCounts], Field(description="By kind.")]
    dangling: Annotated[_Count, Field(description="Records that are stored and refer to an unknown record.")]
    leftOut: Annotated[list[LineReason], Field(description="The first lines, from 1, whose records have no effect.")]
    remarks: Annotated[list[LineReason], Field(description="Lines that are suspicious, but used.")]


_Time = Annotated[str | None, Field(json_schema_extra={"format": "date-time"})]


class SourceStateWire(TypedDict):
    """The state of a source."""

    source: str
    sequence: _Count
    records: _Count
    dangling: _Count
    pushed: _Time
    read: _Time
    ageSeconds: float | None
