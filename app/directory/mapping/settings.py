"""The settings of rules.

Expressions are compiled when the settings are loaded, so that the error of an invalid one names its key.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from app.access.kinds import KINDS
from app.access.records import Fill, User
from app.directory.field_names import check_field_names, missing_fields
from app.directory.fields import MalformedRecordError
from app.directory.mapping.cel import IT, MEMBER, ExpressionError, LibraryMissingError, language
from app.foundation.configuration.schema import SettingsSection

Constant = bool | int | float
"""A constant value. Text is an expression."""


def _checked_expression(text: str) -> str:
    """Raises ``ExpressionError`` unless the expression compiles."""
    # The missing library is reported once, for all rules.
    with suppress(LibraryMissingError):
        language(IT, MEMBER).compile(text)
    return text


def _checked_value(value: object) -> object:
    """Raises ``ExpressionError`` unless it is an expression or a constant."""
    if isinstance(value, str):
        return _checked_expression(value)
    if isinstance(value, bool | int | float) and (isinstance(value, int) or math.isfinite(value)):
        return value
    raise ExpressionError(
        "should be an expression (text in two kinds of quotes is itself: '\"viewer\"'), a number, true or false"
    )


def _checked_fill(value: object) -> object:
    """Raises ``ExpressionError`` unless it is an expression or the fields of a fill."""
    if isinstance(value, str):
        return _checked_expression(value)
    if not isinstance(value, dict) or not value:
        raise ExpressionError("should be an expression for an alias, or the fields of a fill")
    for name, field in value.items():
        try:
            _checked_value(field)
        except ExpressionError as error:
            raise ExpressionError(f"{name}: {error}") from None
    return value


ExpressionText = Annotated[str, Field(strict=True), AfterValidator(_checked_expression)]
FieldValue = Annotated[Any, AfterValidator(_checked_value)]
Fields = Annotated[dict[str, FieldValue], Field(min_length=1)]


class RuleSettings(SettingsSection):
    """A rule that makes records of objects. It has exactly one kind, with its fields."""

    from_: str = Field(alias="from", min_length=1, max_length=200)
    """The set of objects: ``users``, ``groups``, the name of a query."""
    when: ExpressionText | None = None
    """A condition for objects of the set. Default: all."""
    each: Literal["members"] | None = None
    """``members``: one record per member of the object, including nested ones. Its variable is ``member``."""
    aliases: tuple[ExpressionText, ...] = ()
    """Names by which other records may refer to the user, for rules that make a ``user``."""
    fill: Annotated[Any, AfterValidator(_checked_fill)] = None
    """Adds fields to a user of another source: an expression for an alias of the user, with the fields in ``user``, or
    all fields of a ``fill`` record, including ``userId``."""
    organization: Fields | None = None
    user: Fields | None = None
    membership: Fields | None = None
    group: Fields | None = None
    groupMember: Fields | None = None  # noqa: N815 - the name of the kind
    folder: Fields | None = None
    document: Fields | None = None
    grant: Fields | None = None
    contextGrant: Fields | None = None  # noqa: N815 - as above

    @model_validator(mode="after")
    def _one_kind(self) -> "RuleSettings":
        kinds = [kind for kind in RULE_KINDS if isinstance(getattr(self, kind), dict)]
        if len(kinds) != 1:
            names = " and ".join(kinds) if kinds else "none"
            raise ValueError(f"a rule makes records of exactly one kind ({', '.join(RULE_KINDS)}), but it has {names}")
        if self.kind != User.kind and self.aliases:
            raise ValueError("aliases are only for rules that make a user")
        if isinstance(self.fill, str) and self.user is None:
            raise ValueError(f"fill needs the fields in user, but there is {kinds[0]}")
        self._check_fields()
        with suppress(LibraryMissingError):
            self._check_variables()
        return self

    def _check_variables(self) -> None:
        """Raises ``ValueError`` for valid expressions that are not valid in their place."""
        if self.when is not None and not language(IT, MEMBER).compile(self.when).is_boolean:
            raise ValueError(f"when: {self.when} is neither true nor false; compare it with something")
        if self.each is None:
            for key, text in self.expressions():
                if MEMBER in language(IT, MEMBER).compile(text).names:
                    raise ValueError(f"{key}: {MEMBER} exists only in rules with each: members")

    def _check_fields(self) -> None:
        """Raises ``ValueError`` for unknown fields, and for missing ones that every record needs."""
        if "kind" in self.fields:
            raise ValueError(f"{self._key}.kind: is not a field; the rule makes records of the kind {self.kind} only")
        try:
            check_field_names(self.kind, self.fields)
        except MalformedRecordError as error:
            raise ValueError(f"{self._key}: {error}") from None
        if missing := missing_fields(self.kind, self.fields):
            raise ValueError(f"{self._key}: lacks {', '.join(missing)}, which every record of it needs")

    @property
    def kind(self) -> str:
        if self.fill is not None:
            return Fill.kind
        return next(kind for kind in RULE_KINDS if isinstance(getattr(self, kind), dict))

    @property
    def fields(self) -> Mapping[str, str | Constant]:
        """The fields of its records: field → expression, or constant."""
        fields: dict[str, str | Constant] = getattr(self, self._key)
        return {**fields, "userAlias": self.fill} if isinstance(self.fill, str) else fields

    @property
    def _key(self) -> str:
        return User.kind if isinstance(self.fill, str) else self.kind

    def expressions(self) -> Iterator[tuple[str, str]]:
        """All expressions, each with its key in the rule."""
        if self.when is not None:
            yield "when", self.when
        yield from (("aliases", text) for text in self.aliases)
        if isinstance(self.fill, str):
            yield "fill", self.fill
        fields: dict[str, str | Constant] = getattr(self, self._key)
        yield from ((f"{self._key}.{name}", text) for name, text in fields.items() if isinstance(text, str))


RULE_KINDS = tuple(kind for kind in KINDS if kind in RuleSettings.model_fields)
"""The kinds of record that rules can make."""


def _with_library(rules: tuple[RuleSettings, ...]) -> tuple[RuleSettings, ...]:
    language(IT, MEMBER)
    return rules


def check_rule_sets(rules: Sequence[RuleSettings], sets: Collection[str], advice: str = "") -> None:
    """Raises ``ValueError`` for a rule that reads from another set."""
    for number, rule in enumerate(rules, start=1):
        if rule.from_ not in sets:
            raise ValueError(f"map: rule {number} reads from {rule.from_}, but the sets are {', '.join(sets)}{advice}")


RuleList = Annotated[tuple[RuleSettings, ...], Field(min_length=1), AfterValidator(_with_library)]
"""The rules of a source, in their order."""


def disabled_if(rule: RuleSettings, condition: str) -> RuleSettings | None:
    """The rule, whose users are also disabled if a condition is true. None if it neither makes nor disables users."""
    if rule.kind != User.kind and (rule.kind != Fill.kind or "disabled" not in rule.fields):
        return None
    disabled = rule.fields.get("disabled", False)
    # The line break ends a comment.
    value = disabled or condition if isinstance(disabled, bool) else f"{condition} ? dyn(true) : ({disabled}\n)"
    key = rule.kind if rule.user is None else User.kind
    return rule.model_copy(update={key: {**getattr(rule, key), "disabled": value}})
