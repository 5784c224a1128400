"""Compares the responses of an app under test with the service's OpenAPI document."""

import re
from functools import cache
from typing import Any

import jsonschema_rs
from flask import Flask, Response, request

from app.contract.base import wire_name
from app.service.admin.openapi import document
from app.service.provider.settings import ProviderSettings


@cache
def _openapi() -> Any:
    return document(ProviderSettings())


def undocumented_responses(app: Flask) -> list[str]:
    """Returns a list to which responses that the document does not describe are appended."""
    found: list[str] = []

    @app.after_request
    def compare(response: Response) -> Response:
        path = re.sub(r"<(?:\w+:)?(\w+)>", lambda part: f"{{{wire_name(part[1])}}}", str(request.url_rule))
        operation = _openapi()["paths"].get(path, {}).get(request.method.lower())
        if operation is not None:
            known = operation["responses"].get(str(response.status_code))
            schema = known and known.get("content", {}).get("application/json", {}).get("schema")
            if known is None:
                found.append(f"{request.method} {path}: {response.status_code}")
            elif schema:
                rules = jsonschema_rs.Draft202012Validator(schema | {"components": _openapi()["components"]})
                found.extend(f"{request.method} {path}: {error.message}" for error in rules.iter_errors(response.json))
        return response

    return found
