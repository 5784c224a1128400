"""What plug-ins import: all names of Usher that a source of another package needs (``testing/README.md``)."""

from app.directory.connector import (
    ALL_ATTRIBUTES,
    Connector,
    CursorRefusedError,
    DirectoryObject,
    LoginRefusedError,
    Objects,
    ReadError,
    RequestedFields,
)
from app.directory.plugin_settings import PluginSettings
from app.directory.plugins import SourcePlugin
from app.directory.source import (
    EVERYTHING,
    Answered,
    End,
    Gone,
    Malformed,
    ObjectId,
    Part,
    ReadRequest,
    Remark,
    Verdict,
)

__all__ = [
    "ALL_ATTRIBUTES",
    "EVERYTHING",
    "Answered",
    "Connector",
    "CursorRefusedError",
    "DirectoryObject",
    "End",
    "Gone",
    "LoginRefusedError",
    "Malformed",
    "ObjectId",
    "Objects",
    "Part",
    "PluginSettings",
    "ReadError",
    "ReadRequest",
    "Remark",
    "RequestedFields",
    "SourcePlugin",
    "Verdict",
]
