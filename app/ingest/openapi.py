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


def push_schemas() -> Json:
    """The schemas of pushes and of their answers."""
    number: Json = {"type": "integer", "minimum": 0}
    items: Json = {"type": "array", "maxItems": MAX_ITEMS, "items": {"type": "object"}}
    left_out: Json = {
        "type": "object",
        "required": ["index", "reason"],
        "properties": {"index": number, "reason": {"type": "string"}},
    }
    counts: dict[str, JsonValue] = dict.fromkeys(("added", "updated", "unchanged", "removed", "absent"), number)
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
                "upsert": items | {"description": "Records, as a directory file has them."},
                "remove": items | {"description": "Keys of records: kind and ids."},
            },
        },
        "PushAnswer": {
            "type": "object",
            "required": ["sequence"],
            "properties": {
                "revision": number,
                "sequence": number | {"description": "That of the last push that was applied."},
                "counts": {"type": "object", "properties": counts},
                "leftOut": {
                    "type": "array",
                    "items": left_out,
                    "description": "Records that are kept and do not count yet, or that another one replaces.",
                },
            },
        },
        "SourceAnswer": {
            "type": "object",
            "required": ["revision", "records", "changes", "dangling", "leftOut", "remarks"],
            "properties": {
                "revision": number,
                "records": number,
                "changes": {"type": "object", "description": "Kind → records added, updated and removed."},
                "dangling": number | {"description": "How many records are kept that refer to what is nowhere."},
                "leftOut": {
                    "type": "array",
                    "items": left_out,
                    "description": "The first lines, counted from 1, whose records do not count.",
                },
                "remarks": {"type": "array", "items": left_out, "description": "What is odd of which line, but used."},
            },
        },
        "SourceState": {
            "type": "object",
            "required": ["source", "sequence", "records", "dangling", "pushed", "read", "ageSeconds"],
            "properties": {
                "source": {"type": "string"},
                "sequence": number,
                "records": number,
                "dangling": number,
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
