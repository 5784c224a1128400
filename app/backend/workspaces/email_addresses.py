"""Owners' email addresses: who is it, and is it an address to do business with?"""

from typing import NamedTuple

from disposable_email_domains import blocklist
from email_validator import EmailNotValidError, validate_email

from app.contract.errors import InvalidArgument

_FIELD = "data.ownerEmail"


class EmailAddress(NamedTuple):
    """A sound address."""

    address: str
    """As given, with the domain in lower case."""
    key: str
    """The address in lower case: what an owner is known by."""
    local_part: str
    """What stands before the ``@``, as given."""


def owner_address(text: str) -> EmailAddress:
    """The address in ``text``. Raises ``InvalidArgument`` when it is none, or one that is made to be thrown away.

    No name server is asked. Addresses under ``.test`` are let through: this server also runs trials.
    """
    try:
        valid = validate_email(text, check_deliverability=False, test_environment=True)
    except EmailNotValidError as error:
        raise InvalidArgument(f"{_FIELD}: must be an email address") from error
    if is_disposable(valid.ascii_domain or valid.domain):
        raise InvalidArgument(f"{_FIELD}: disposable email domains are not accepted")
    return EmailAddress(valid.normalized, valid.normalized.casefold(), valid.local_part)


def is_disposable(domain: str) -> bool:
    """Whether the domain, or one that it lies under, gives out throw-away addresses."""
    labels = domain.lower().rstrip(".").split(".")
    return any(".".join(labels[start:]) in blocklist for start in range(len(labels) - 1))
