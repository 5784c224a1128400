"""Checks the settings of SCIM sources, and completes their rules."""

from collections.abc import Sequence

from app.access.records import Fill, User
from app.directory.mapping.cel import IT, MEMBER
from app.directory.mapping.settings import RuleSettings, disabled_or

USERS, GROUPS = "users", "groups"
"""The sets of objects."""


def name_in_address(name: str) -> str:
    """Raises ``ValueError`` unless a source may have this name."""
    if "/" in name or not name.isprintable():
        raise ValueError("must hold no slash and no control characters, because it is a part of the address")
    return name


def check_sets(rules: Sequence[RuleSettings]) -> None:
    """Raises ``ValueError`` for rules of other sets, or for members of users."""
    for number, rule in enumerate(rules, start=1):
        if rule.from_ not in (USERS, GROUPS):
            raise ValueError(f"map: rule {number} reads from {rule.from_}, but the sets are {USERS}, {GROUPS}")
        if rule.each is not None and rule.from_ != GROUPS:
            raise ValueError(f"map: rule {number}: only {GROUPS} have members")


def active_only(rule: RuleSettings) -> RuleSettings:
    """The rule, which disables users who are not active, and makes no other records of them."""
    if rule.from_ == GROUPS and rule.each is None:
        return rule
    active = f"{MEMBER if rule.each else IT}.active"
    if rule.kind == User.kind or (rule.kind == Fill.kind and "disabled" in rule.fields):
        key = rule.kind if rule.user is None else User.kind
        disabled = disabled_or(f"!{active}", rule.fields.get("disabled", False))
        return rule.model_copy(update={key: {**getattr(rule, key), "disabled": disabled}})
    return rule.model_copy(update={"when": active if rule.when is None else f"{active} && ({rule.when}\n)"})
