"""The sets of SCIM sources, and the changes of their rules for users who are not active."""

from app.directory.mapping.cel import IT, MEMBER
from app.directory.mapping.settings import RuleSettings, disabled_if

USERS, GROUPS = "users", "groups"


def name_in_address(name: str) -> str:
    """Raises ``ValueError`` unless a source may have this name."""
    if "/" in name or not name.isprintable():
        raise ValueError("must hold no slash and no control characters, because it is a part of the address")
    return name


def active_only(rule: RuleSettings) -> RuleSettings:
    """The rule, which disables users who are not active, and makes no other records of them."""
    if rule.from_ == GROUPS and rule.each is None:
        return rule
    active = f"{MEMBER if rule.each else IT}.active"
    if (disabling := disabled_if(rule, f"!{active}")) is not None:
        return disabling
    return rule.model_copy(update={"when": active if rule.when is None else f"{active} && ({rule.when}\n)"})
