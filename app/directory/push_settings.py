"""The settings of pushes: who may tell a source of changes, and of which."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from app.access.kinds import KINDS
from app.directory.spelling import resembling


def _token(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError("must be neither empty nor hold control characters or spaces at its ends")
    return value


def _kind(value: str) -> str:
    if value not in KINDS:
        near = resembling(value, KINDS)
        raise ValueError(f"{value!r} is not one of {', '.join(KINDS)}{f'; did you mean {near}?' if near else ''}")
    return value


def _organization_id(value: str) -> str:
    if not value or len(value.encode()) > 512 or "\0" in value:
        raise ValueError("must be the id of an organization: 1 to 512 bytes of text")
    return value


class ChangesSettings(BaseModel):
    """The key ``changes`` of a source: what may be pushed to it at ``/directory/NAME``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tokens: tuple[Annotated[SecretStr, AfterValidator(_token)], ...] = ()
    """Bearer tokens, of this source alone. Any of them is accepted, so that one can be exchanged for another without a
    gap; without any nothing can be pushed."""
    kinds: tuple[Annotated[str, AfterValidator(_kind)], ...] = ()
    """The kinds of record that may be pushed; empty: all of them."""
    organizations: tuple[Annotated[str, AfterValidator(_organization_id)], ...] = ()
    """The ids of the organizations of which records may be pushed; empty: all. Where it is given, kinds that belong to
    no organization may be pushed only if ``kinds`` names them."""


class AcceptedChanges(ChangesSettings):
    """The same for a source that has nothing else."""

    tokens: Annotated[tuple[Annotated[SecretStr, AfterValidator(_token)], ...], Field(min_length=1)]
    """As above; without one nothing would ever come."""
