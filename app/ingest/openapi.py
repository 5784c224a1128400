"""What the service's OpenAPI document says of pushes."""

from pydantic import JsonValue

from app.directory.pushes import MAX_ITEMS
from app.ingest.blueprint import LINES_TYPES

Json = dict[str, JsonValue]
_NAME: Json = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "The source's name, URL-encoded.",
    "schema": {"type": "string", "minLength": 1},
}
_SHRINK: Json = {
    "name": "acceptShrink",
    "in": "query",
    "description": "Whether it may take away more than the source's guard lets go.",
    "schema": {"type": "boolean"},
}


_NUMBER: Json = {"type": "integer", "minimum": 0}
_ITEMS: Json = {"type": "array", "maxItems": MAX_ITEMS, "items": {"type": "object"}}
_LEFT_OUT: Json = {
    "type": "object",
    "required": ["index", "reason"],
    "properties": {"index": _NUMBER, "reason": {"type": "string"}},
}
_COUNTS: dict[str, JsonValue] = dict.fromkeys(("added", "updated", "unchanged", "removed", "absent"), _NUMBER)


def push_schemas() -> Json:
    """The schemas of pushes and of their answers."""
    return {
        "Push": {
            "type": "object",
            "required": ["sequence"],
            "additionalProperties": False,
            "description": f"{MAX_ITEMS:,} records and keys at most, all or nothing.",
            "properties": {
                "sequence": {"type": "integer", "minimum": 1, "description": "Higher with each push."},
                "previousSequence": {
                    "type": ["integer", "null"],
                    "minimum": 0,
                    "description": "That of the push before; where another one was applied last, it is refused.",
                },
                "upsert": _ITEMS | {"description": "Records, as a directory file has them."},
                "remove": _ITEMS | {"description": "Keys of records: kind and ids."},
            },
        },
        "PushAnswer": {
            "type": "object",
            "required": ["sequence"],
            "properties": {
                "revision": _NUMBER,
                "sequence": _NUMBER | {"description": "That of the last push that was applied."},
                "counts": {"type": "object", "properties": _COUNTS},
                "leftOut": {
                    "type": "array",
                    "items": _LEFT_OUT,
                    "description": "Records that are kept and do not count yet, or that another one replaces.",
                },
            },
        },
        "SourceAnswer": {
            "type": "object",
            "required": ["revision", "records", "changes", "dangling", "leftOut", "remarks"],
            "properties": {
                "revision": _NUMBER,
                "records": _NUMBER,
                "changes": {"type": "object", "description": "Kind → records added, updated and removed."},
                "dangling": _NUMBER | {"description": "How many records are kept that refer to what is nowhere."},
                "leftOut": {
                    "type": "array",
                    "items": _LEFT_OUT,
                    "description": "The first lines, counted from 1, whose records do not count.",
                },
                "remarks": {"type": "array", "items": _LEFT_OUT, "description": "What is odd of which line, but used."},
            },
        },
        "SourceState": {
            "type": "object",
            "required": ["source", "sequence", "records", "dangling", "pushed", "read", "ageSeconds"],
            "properties": {
                "source": {"type": "string"},
                "sequence": _NUMBER,
                "records": _NUMBER,
                "dangling": _NUMBER,
                "pushed": {"type": ["string", "null"], "format": "date-time"},
                "read": {"type": ["string", "null"], "format": "date-time"},
                "ageSeconds": {"type": ["number", "null"]},
            },
        },
    }


def push_paths() -> Json:
    """The paths of pushes."""
    return {
        "/directory/{name}": {
            "get": _described("getSource", "How far a source has come.", "SourceState", ()),
            "put": _described("putSource", "All that a source says.", "SourceAnswer", (400, 409, 411, 413, 415))
            | {
                "parameters": [_NAME, _SHRINK],
                "requestBody": {
                    "required": True,
                    "description": 'Records, one a line, and at last {"end": true, "records": N}.',
                    "content": {name: {} for name in LINES_TYPES},
                },
            },
        },
        "/directory/{name}/changes": {
            "post": _described("pushChanges", "What changed in a source.", "PushAnswer", (400, 409, 413, 415))
            | {
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Push"}}},
                }
            },
        },
    }


def _described(name: str, summary: str, schema: str | None, codes: tuple[int, ...]) -> Json:
    failure: Json = {"application/json": {"schema": {"$ref": "#/components/schemas/FailureEnvelope"}}}
    shape: Json = {"schema": {"$ref": f"#/components/schemas/{schema}"}} if schema else {}
    responses: Json = {"200": {"description": "Success", "content": {"application/json": shape}}}
    for code in sorted((*codes, 401, 403, 404, 429, 503)):
        responses[str(code)] = {"description": "Failure", "content": failure}
    return {
        "operationId": name,
        "summary": summary,
        "security": [{"source": []}],
        "parameters": [_NAME],
        "responses": responses,
    }
