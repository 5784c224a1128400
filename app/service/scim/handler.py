"""Handles SCIM requests with the library scim2-server, within limits.

The library would load, validate and write all members of a group to change one of them, so the handler separates the
changes of members (``member_changes.py``) from its requests.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
from pydantic import ValidationError
from scim2_models import InvalidValueException, PatchOp, PatchOperation, Resource, ResourceType
from scim2_server.conditions import Conditions
from scim2_server.handler import ScimHandler
from scim2_server.requests import ScimRequest
from scim2_server.responses import ScimResponse
from scim2_server.service import scim_exception_of

from app.directory.connectors.scim.objects import GROUP
from app.service.scim.member_changes import MemberChange, split_member_changes
from app.service.scim.members import members_of
from app.service.scim.storage import StoredResources

MAX_OPERATIONS = 1_000
"""The maximum of operations in a PATCH."""

MAX_EXPRESSION = 8_000
"""The maximum length of a path or filter, in characters."""

_UNSTORABLE = re.compile(r"\\u(?:0000|d[89a-f][0-9a-f]{2})", re.IGNORECASE)
"""Escapes in filters of characters that databases do not store."""

_INSTANCE = re.compile(r"a valid dictionary or instance of \w+")


class RequestHandler(ScimHandler):
    """The library's handler, with limits, and with changes of members in the database."""

    storage: StoredResources
    _returns_members = False

    def patch(self, request: ScimRequest) -> ScimResponse:
        # Without these parameters the response has no body.
        self._returns_members = bool({"attributes", "excludedAttributes"} & set(request.query))
        _check_operations(request.body)
        try:
            return super().patch(request)
        except InvalidValueException as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            # Its text has several lines, with the names of classes.
            detail = _INSTANCE.sub("an object", scim_exception_of(error.__cause__).detail)
            raise InvalidValueException(detail=detail) from None

    def search_with_body(self, request: ScimRequest) -> ScimResponse:
        check_expressions(_fields(orjson.loads(request.body), "filter"))
        return super().search_with_body(request)

    def replace_resource(
        self, resource_type: ResourceType, current: Resource[Any], replacement: Resource[Any], conditions: Conditions
    ) -> Resource[Any]:
        members = None
        if resource_type.name == GROUP:
            members = members_of(replacement)
            replacement.members = None  # type: ignore[attr-defined] # of groups
        elif replacement.active is None:  # type: ignore[attr-defined] # of users
            # Users are active again only if the directory states it.
            replacement.active = current.active  # type: ignore[attr-defined] # as above
        version = current.meta.version if current.meta else None
        replaced = self.service.apply_replacement(current, replacement, conditions)
        self.storage.update_parts(resource_type, replaced or current, members, expected_version=version)
        return self.storage.load(resource_type, str(current.id), with_members=True)

    def patch_resource(
        self, resource_type: ResourceType, resource_id: str, patch_op: "PatchOp[Any]", conditions: Conditions
    ) -> Resource[Any]:
        storage = self.storage
        others: Sequence[PatchOperation[Any]] = patch_op.operations or ()
        changes: Sequence[MemberChange] = ()
        if resource_type.name == GROUP:
            changes, others = split_member_changes(others)
        current = storage.load(resource_type, resource_id, with_members=False)
        if others:
            remaining = patch_op.model_copy(update={"operations": others})
            patched = self.service.apply_patch(current, remaining, conditions)
            if patched is not None:
                storage.update_parts(resource_type, patched, None)
        else:
            self.service.check_preconditions(current, "PATCH", conditions)
        for change in changes:
            if change.replaces:
                storage.replace_members(resource_id, change.add)
                continue
            if change.remove:
                storage.remove_members(resource_id, change.remove)
            storage.change_members(resource_id, add=change.add)
        return storage.load(resource_type, resource_id, with_members=self._returns_members)


def _check_operations(body: bytes) -> None:
    """Raises ``InvalidValueException`` for a PATCH without operations, and for one that would take long."""
    for operations in _fields(orjson.loads(body), "operations"):
        if not isinstance(operations, list):
            continue
        if not operations:
            raise InvalidValueException(detail="a PATCH must have at least one operation")
        if len(operations) > MAX_OPERATIONS:
            raise InvalidValueException(detail=f"a PATCH must have at most {MAX_OPERATIONS:,} operations")
        for operation in operations:
            check_expressions(_fields(operation, "path"))
            # The names of attributes in a value are paths, too.
            for value in _fields(operation, "value"):
                check_expressions(value if isinstance(value, dict) else ())


def _fields(body: object, name: str) -> Sequence[object]:
    """The values of an attribute, whatever the case of its name."""
    return [value for key, value in body.items() if key.lower() == name] if isinstance(body, dict) else []


def check_expressions(expressions: Iterable[object]) -> None:
    """Checks paths and filters. Raises ``InvalidValueException``."""
    for text in expressions:
        if isinstance(text, str) and len(text) > MAX_EXPRESSION:
            raise InvalidValueException(detail=f"a path or filter must have at most {MAX_EXPRESSION:,} characters")
        if isinstance(text, str) and _UNSTORABLE.search(text):
            raise InvalidValueException(detail="a path or filter contains an escape of NUL or half a surrogate pair")
