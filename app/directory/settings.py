"""The settings of the directory: which sources are read, and how long what is gone is kept."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from app.access.kinds import KINDS
from app.access.records import Fill, User
from app.directory.connectors.ldap.settings import ACCOUNT_EXPIRED, LdapConnectionSettings
from app.directory.connectors.sql.settings import SqlSettings
from app.directory.mapping.cel import IT, MEMBER, ExpressionError, language
from app.directory.mapping.settings import RULE_KINDS, Constant, RuleList, RuleSettings
from app.directory.push_settings import AcceptedChanges, ChangesSettings


def _usable_path(path: Path) -> Path:
    if "\0" in str(path) or not path.name or len(str(path)) > 1000:
        raise ValueError("not the path of a file")
    return path


class GuardSettings(BaseModel):
    """How much one read may remove, or enable again; above both numbers that waits until somebody confirms it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(default=20, ge=0)
    """So many records of one kind may go at once, whatever part of all they are."""
    percent: float = Field(default=20, ge=0, le=100)
    """So many percent of the records of one kind may go at once, however many they are; 100: all of them."""


_NOT_OF_THE_RECORDS: dict[str, Any] = {
    **dict.fromkeys(("name", "timeout", "poll", "full_every", "guard"), True),
    "changes": dict.fromkeys(ChangesSettings.model_fields, True),
}
"""Settings of a source on which its records do not depend."""


class SourceBase(BaseModel):
    """What the settings of every source have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(default="", max_length=200)
    """What the source is called in reports and for ``--accept-empty``; the path when it is not given."""
    timeout: float | None = Field(default=None, ge=0, le=7 * 24 * 3600)
    """Seconds that one read of it may keep its reader waiting in all, and ten times as many that it may take as a
    whole; 0: no limit. Nothing: ``directory.read_timeout``."""
    poll: float = Field(default=0, ge=0, le=7 * 24 * 3600)
    """Seconds after which it is asked for changes between syncs; 0: it is not."""
    full_every: float = Field(default=24 * 3600, ge=0, le=366 * 24 * 3600)
    """Seconds after which a source that tells changes is read as a whole all the same; 0: it always is."""
    guard: GuardSettings | None = None
    """How much a read of it may take away; nothing: ``directory.guard``."""
    changes: ChangesSettings | None = None
    """What an application may push to it besides."""

    @property
    def source_name(self) -> str:
        """The name in force."""
        return self.name

    @property
    def digest(self) -> str:
        """A hash of what the records depend on; where it differs, what changed since an earlier read says nothing."""
        return sha256(orjson.dumps(self.identity(), option=orjson.OPT_SORT_KEYS)).hexdigest()

    def identity(self) -> dict[str, object]:
        """The settings that the records depend on, as JSON. Secrets are masked: where one of them (a URL) tells apart
        what is read, the class adds what it tells without the secret."""
        return self.model_dump(mode="json", exclude=_NOT_OF_THE_RECORDS)


LINES = (".jsonl", ".ndjson")
"""How the names of files of JSON Lines end, before ``.gz``."""


class FileSourceSettings(SourceBase):
    """A directory in a file: JSON Lines, JSON or YAML, each also gzipped."""

    type: Literal["file"]
    """Which sort of source this is."""
    path: Annotated[Path, AfterValidator(_usable_path)]
    """The file; a relative path starts in the working directory."""
    require_end: bool = False
    """Whether JSON Lines without an end record are taken for cut off: nothing that is not in them is gone."""

    @model_validator(mode="after")
    def _only_lines_have_an_end(self) -> "FileSourceSettings":
        if self.require_end and not any(suffix in LINES for suffix in map(str.lower, self.path.suffixes[-2:])):
            raise ValueError(
                f"require_end is for JSON Lines ({', '.join(LINES)}); other documents show that they were cut off"
            )
        return self

    @property
    def source_name(self) -> str:
        """The name in force."""
        return self.name or str(self.path)


class LdapSourceSettings(LdapConnectionSettings, SourceBase):
    """A directory in LDAP, and rules that make records of its objects."""

    type: Literal["ldap"]
    """Which sort of source this is."""
    map: RuleList
    """The rules, in their order."""

    @model_validator(mode="after")
    def _rules_read_sets_that_are_there(self) -> "LdapSourceSettings":
        known = self.sets_in_force()
        for number, rule in enumerate(self.map, start=1):
            if rule.from_ not in known:
                raise ValueError(
                    f"map: rule {number} reads from {rule.from_}, and there are {', '.join(known)}; sets may add others"
                )
        for number, (rule, given) in enumerate(zip(self.rules_in_force(), self.map, strict=True), start=1):
            for key, text in rule.expressions() if rule != given else ():
                try:
                    language(IT, MEMBER).compile(text)
                except ExpressionError as error:
                    raise ValueError(f"map: rule {number}: {key}, with account_expiry, {error}") from None
        return self

    def rules_in_force(self) -> RuleList:
        """The rules. Those that name an account end its access when it expires, unless ``account_expiry`` is false."""
        ends = self.preset_in_force().ends
        return tuple(_ended(rule, ends) for rule in self.map)

    @property
    def source_name(self) -> str:
        """The name in force."""
        return self.name or f"{self.server}/{self.base}"


def _ended(rule: RuleSettings, ends: Mapping[str, str]) -> RuleSettings:
    """The rule. Users that it makes or disables are disabled if their account has expired. Its other records that name
    a user end with the account. ``ends``: set → the attribute."""
    attribute = next(iter(ends.values()), "") if rule.each else ends.get(rule.from_, "")
    if not attribute:
        return rule
    fields, variable = rule.fields, MEMBER if rule.each else IT
    if rule.kind == User.kind or (rule.kind == Fill.kind and "disabled" in fields):
        key = rule.kind if rule.user is None else User.kind
        disabled = _disabled_or(f"has({variable}.{ACCOUNT_EXPIRED})", fields.get("disabled", False))
        return rule.model_copy(update={key: {**getattr(rule, key), "disabled": disabled}})
    can_end = rule.kind in RULE_KINDS and "expiresAt" in KINDS[rule.kind].field_names and "expiresAt" not in fields
    if not can_end or not fields.keys() & {"userId", "userAlias"}:
        return rule
    return rule.model_copy(update={rule.kind: {**fields, "expiresAt": f"{variable}.{attribute}"}})


def _disabled_or(expired: str, disabled: str | Constant) -> str | Constant:
    """An expression that is true if the account has expired, and ``disabled`` otherwise."""
    if isinstance(disabled, bool):
        return disabled or expired
    # The line break ends a comment.
    return f"{expired} ? dyn(true) : ({disabled}\n)"


class PushSourceSettings(SourceBase):
    """A source that holds what was pushed to it, and nothing else."""

    type: Literal["push"]
    """Which sort of source this is."""
    name: str = Field(min_length=1, max_length=200)
    """What the source is called in addresses and reports."""
    changes: AcceptedChanges
    """Who may push, and what."""


class SqlSourceSettings(SqlSettings, SourceBase):
    """A directory in a database."""

    def identity(self) -> dict[str, object]:
        given = super().identity() | {"place": self.database}
        return {name: value for name, value in given.items() if name not in {"connect_timeout", "answer_timeout"}}


SourceSettings = Annotated[
    FileSourceSettings | LdapSourceSettings | SqlSourceSettings | PushSourceSettings, Field(discriminator="type")
]


class DirectorySettings(BaseModel):
    """The section ``directory``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sources: Annotated[tuple[SourceSettings, ...], Field(min_length=1)] = ()
    """The sources, the most authoritative first: a record key belongs to the first source that gives it. There is no
    default: whoever forgot to name one must not end up with somebody else's directory."""
    grace: int = Field(default=0, ge=0, le=366 * 24 * 3600)
    """Seconds for which something gone from the directory is kept in the backend; its access ends at once."""
    read_timeout: float = Field(default=900, ge=0, le=7 * 24 * 3600)
    """Seconds that a source may keep its reader waiting in all; then its read counts as failed. So it does if it takes
    ten times as long as a whole. 0: no limit."""
    spool: Path | None = None
    """The folder in which it is kept between reads who is a member of what, of sources whose rules ask for members.
    Nothing: beside the database if that is a file, otherwise in the system's folder for temporary files."""
    guard: GuardSettings = Field(default_factory=GuardSettings)
    """How much a read of any one source, and one read of all sources together, may take away without being asked."""
    max_age: int = Field(default=0, ge=0, le=366 * 24 * 3600)
    """Seconds after which a directory that could not be read any more makes ``/readyz`` fail; 0: never."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> "DirectorySettings":
        names = [source.source_name for source in self.sources]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two sources are called {name!r}; give one of them another name")
        return self

    @model_validator(mode="after")
    def _tokens_belong_to_one_source(self) -> "DirectorySettings":
        owners: dict[str, str] = {}
        for source in self.sources:
            for token in source.changes.tokens if source.changes is not None else ():
                owner = owners.setdefault(token.get_secret_value(), source.source_name)
                if owner != source.source_name:
                    raise ValueError(
                        f"the sources {owner!r} and {source.source_name!r} accept the same token in changes.tokens;"
                        " make one for each: whoever holds it could push to both"
                    )
        return self
