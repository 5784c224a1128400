"""Reads the bodies of requests of operators. They are strict: an unknown field is an error."""

from typing import Any, TypeVar

from flask import request
from pydantic import AfterValidator, ConfigDict, ValidationError

from app.contract.base import Request
from app.contract.errors import InvalidArgument
from app.contract.validation import first_error
from app.foundation.text import named
from app.http.body import read_json

MAX_BODY_BYTES = 1024 * 1024


class StrictRequest(Request):
    """A request, or an object in it, that refuses unknown fields. Those of the backend's API ignore them."""

    model_config = ConfigDict(extra="forbid")


BodyT = TypeVar("BodyT", bound=StrictRequest)


def _not_empty(values: list[Any] | None) -> list[Any] | None:
    if values is not None and not values:
        raise ValueError("must not be empty: leave it out for everything")
    return values


# A client whose search found nothing sends an empty list. It must not select everything.
NOT_EMPTY = AfterValidator(_not_empty)


def read_body(shape: type[BodyT]) -> BodyT:
    """The body of the request. Without a body all fields have their defaults. Raises ``InvalidArgument``."""
    body: object = {}
    if request.content_length not in {0, None} or "Transfer-Encoding" in request.headers:
        body = read_json(request, max_bytes=MAX_BODY_BYTES)
    if not isinstance(body, dict):
        raise InvalidArgument("the body must be a JSON object")
    for name in body:
        if not any(name == field.alias for field in shape.model_fields.values()):
            known = ", ".join(str(field.alias) for field in shape.model_fields.values())
            raise InvalidArgument(f"body.{named(name, limit=80)}: not a field of this request; allowed: {known}")
    try:
        return shape.from_wire(body)
    except ValidationError as error:
        raise InvalidArgument(first_error(error, body, root="body")) from error
