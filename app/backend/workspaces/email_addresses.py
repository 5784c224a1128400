"""Email addresses: their validation, and the addresses that identify the owners of workspaces."""

from typing import NamedTuple

from disposable_email_domains import blocklist
from email_validator import EmailNotValidError, ValidatedEmail, validate_email

from app.contract.errors import InvalidArgument


class EmailAddress(NamedTuple):
    """A valid address."""

    address: str
    """The address with its domain in lower case."""
    key: str
    """The address in lower case, which identifies its owner."""
    local_part: str


def owner_address(text: str) -> EmailAddress:
    """Parses an address. Raises ``InvalidArgument`` for an invalid one, or one with a disposable domain."""
    valid = parse_address(text, "data.ownerEmail")
    labels = (valid.ascii_domain or valid.domain).lower().rstrip(".").split(".")
    if any(".".join(labels[start:]) in blocklist for start in range(len(labels) - 1)):
        raise InvalidArgument("data.ownerEmail: disposable email domains are not accepted")
    return EmailAddress(valid.normalized, valid.normalized.lower(), valid.local_part)


def parse_address(text: str, field: str) -> ValidatedEmail:
    """Raises ``InvalidArgument``, which names the field, for an invalid address.

    Makes no DNS lookup. Accepts addresses under ``.test``, because this server is also used for trials.
    """
    try:
        return validate_email(text, check_deliverability=False, test_environment=True)
    except EmailNotValidError as error:
        raise InvalidArgument(f"{field}: must be an email address") from error
