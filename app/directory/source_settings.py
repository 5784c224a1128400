"""The settings that all sources have."""

from hashlib import sha256
from typing import Annotated, Any, ClassVar

import orjson
from pydantic import AfterValidator, Field, SecretStr, SerializerFunctionWrapHandler, field_serializer

from app.access.kinds import KINDS
from app.directory.spelling import resembling
from app.foundation.configuration.schema import SettingsSection
from app.foundation.ids import MAX_ID_BYTES


def _usable_token(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text or text != text.strip() or not text.isprintable():
        raise ValueError("must be neither empty nor hold control characters or spaces at its ends")
    return value


def _known_kind(value: str) -> str:
    if value not in KINDS:
        near = resembling(value, KINDS)
        raise ValueError(f"should be one of {', '.join(KINDS)}{f'; did you mean {near}?' if near else ''}")
    return value


def _usable_organization_id(value: str) -> str:
    if not value or len(value.encode()) > MAX_ID_BYTES or "\0" in value:
        raise ValueError(f"must be the id of an organization: 1 to {MAX_ID_BYTES} bytes of text")
    return value


KindName = Annotated[str, AfterValidator(_known_kind)]
Token = Annotated[SecretStr, AfterValidator(_usable_token)]


class ChangesSettings(SettingsSection):
    """The key ``changes`` of a source: what may be pushed to ``/directory/NAME``."""

    tokens: tuple[Token, ...] = ()
    """Bearer tokens of this source. Any of them is accepted, so that they can be rotated. Without tokens, nothing can
    be pushed."""
    kinds: tuple[KindName, ...] = ()
    """The kinds of record that may be pushed. Empty: all."""
    organizations: tuple[Annotated[str, AfterValidator(_usable_organization_id)], ...] = ()
    """The ids of the organizations whose records may be pushed. Empty: all. Otherwise kinds without an organization
    must be in ``kinds``."""


class AcceptedChanges(ChangesSettings):
    """The key ``changes`` of a source of pushes, which needs tokens."""

    tokens: Annotated[tuple[Token, ...], Field(min_length=1)]


class GuardSettings(SettingsSection):
    """The limits of a read. A read that exceeds both waits for an operator's confirmation."""

    count: int = Field(default=20, ge=0)
    """The number of records of one kind that may be removed, or enabled again, at once."""
    percent: float = Field(default=20, ge=0, le=100)
    """The percentage of the records of one kind that may be removed, or enabled again, at once."""


_NOT_OF_THE_RECORDS: dict[str, Any] = {
    **dict.fromkeys(("name", "timeout", "poll", "full_every", "guard"), True),
    "changes": dict.fromkeys(ChangesSettings.model_fields, True),
}
"""Settings of a source that do not affect its records."""


class SourceBase(SettingsSection):
    """The settings of every source."""

    not_of_the_records: ClassVar[frozenset[str]] = frozenset()
    """Settings of the subclass that do not affect its records."""

    name: str = Field(default="", max_length=200)
    """The name of the source in reports and for ``--accept-empty``."""
    timeout: float | None = Field(default=None, ge=0, le=7 * 24 * 3600)
    """Seconds for which a reader waits for the source in total. The whole read may take ten times as long. 0: no limit.
    Default: ``directory.read_timeout``."""
    poll: float = Field(default=0, ge=0, le=7 * 24 * 3600)
    """Seconds between incremental reads outside of syncs. 0: none."""
    full_every: float = Field(default=24 * 3600, ge=0, le=366 * 24 * 3600)
    """Seconds after which a full read is required. 0: each read is a full one."""
    guard: GuardSettings | None = None
    """How much a read may remove. Default: ``directory.guard``."""
    changes: ChangesSettings | None = None
    """What an application may push to the source."""

    @field_serializer("*", mode="wrap", when_used="json")
    def _sets_are_sorted(self, value: object, dump: SerializerFunctionWrapHandler) -> Any:
        # The order of a set differs between processes, and must not change the digest.
        dumped = dump(value)
        return sorted(dumped, key=str) if isinstance(value, set | frozenset) else dumped

    @property
    def source_name(self) -> str:
        """The name, or its default."""
        return self.name

    @property
    def digest(self) -> str:
        """A hash of the settings on which the records depend. It invalidates cursors."""
        return sha256(orjson.dumps(self.identity(), option=orjson.OPT_SORT_KEYS)).hexdigest()

    def identity(self) -> dict[str, object]:
        """The settings on which the records depend, as JSON. Secrets are masked. If one of them determines what is read
        (a URL), the subclass adds that without the secret."""
        return self.model_dump(mode="json", exclude=_NOT_OF_THE_RECORDS | dict.fromkeys(self.not_of_the_records, True))
