"""The settings of the directory: its sources, and the limits of their reads."""

import codecs
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, PlainValidator, PrivateAttr, SecretStr, TypeAdapter, model_validator

from app.access.kinds import KINDS
from app.directory.connectors.http.settings import HttpSettings
from app.directory.connectors.ldap.settings import ACCOUNT_EXPIRED, LdapConnectionSettings
from app.directory.connectors.objects.settings import StoreSettings, usable_object_url
from app.directory.connectors.scim.rules import GROUPS, USERS, active_only, name_in_address
from app.directory.connectors.sql.settings import Columns, NullIsAbsent, SqlSettings, TimeZone
from app.directory.mapping.cel import IT, MEMBER, ExpressionError, language
from app.directory.mapping.settings import RULE_KINDS, RuleList, RuleSettings, check_rule_sets, disabled_if
from app.directory.plugins import PluginSettings, plugin_of, plugin_settings
from app.directory.source_settings import AcceptedChanges, GuardSettings, KindName, SourceBase, Token
from app.foundation.configuration.schema import SettingsSection


def _usable_location(value: object) -> Path | str:
    text = str(value) if isinstance(value, Path | str) else ""
    if "\0" in text or not Path(text).name or len(text) > 1000:
        raise ValueError("not the path of a file")
    return usable_object_url(text) if isinstance(value, str) and "://" in text else Path(text)


Location = Annotated[Path | str, PlainValidator(_usable_location)]
"""The path of a file, or the URL of an object as text. Relative paths start in the working directory."""


def _usable_delimiter(text: str) -> str:
    if len(text) != 1 or text.isalnum() or text in '"\r\n\0':
        raise ValueError('should be one character that is no letter, digit, quote or line break; a tab is "\\t"')
    return text


def _usable_encoding(name: str) -> str:
    try:
        "a,b\n".encode(name)
        # Otherwise the byte order mark would be a part of the first column's name.
        return "utf-8-sig" if codecs.lookup(name).name == "utf-8" else name
    except (LookupError, ValueError):
        raise ValueError("not an encoding; write utf-8-sig, cp1252, utf-16 or the like") from None


JSON_LINES = (".jsonl", ".ndjson")
"""Suffixes of JSON Lines, before ``.gz``."""


class _ContentSettings(SourceBase):
    """The settings of sources that read one file or object."""

    path: Location
    store: StoreSettings | None = None
    """The object store, if ``path`` is a URL."""

    @model_validator(mode="after")
    def _only_objects_have_a_store(self) -> Self:
        if self.store is not None and isinstance(self.path, Path):
            raise ValueError("store is for objects, whose path begins with s3://, gs:// or az://")
        return self

    @property
    def source_name(self) -> str:
        return self.name or str(self.path)


class FileSourceSettings(_ContentSettings):
    """A file: JSON Lines, JSON or YAML, perhaps gzipped."""

    type: Literal["file"]
    require_end: bool = False
    """Whether a read of JSON Lines without an end record is partial, because the file may be truncated."""

    @model_validator(mode="after")
    def _only_lines_have_an_end(self) -> "FileSourceSettings":
        suffixes = [suffix.lower() for suffix in PurePath(self.path).suffixes[-2:]]
        if self.require_end and not any(suffix in JSON_LINES for suffix in suffixes):
            raise ValueError(
                f"require_end is for JSON Lines ({', '.join(JSON_LINES)}); other truncated documents are invalid"
            )
        return self

    _shown: str = PrivateAttr(default="")

    @property
    def shown_path(self) -> str:
        """The name of the file in places and errors: the path, unless ``shown_as`` set another one."""
        return self._shown or str(self.path)

    def shown_as(self, name: str) -> "FileSourceSettings":
        """The same file under another name in places and errors, such as that of a file that was uploaded."""
        copy = self.model_copy()
        copy._shown = name  # noqa: SLF001 - of this class
        return copy


ROWS = "rows"
"""The set of the objects in a CSV file."""


class CsvSourceSettings(_ContentSettings):
    """A CSV file, perhaps gzipped. Its rows are records, or objects for rules."""

    type: Literal["csv"]
    kind: KindName | None = None
    """The kind of record that each row is. Default: as in the column ``kind``."""
    map: RuleList = ()
    """Rules that make records of the rows, which are the objects of the set ``rows``."""
    key: Columns = ()
    """The columns that identify a row permanently. Default: the key fields of the records, or the column
    ``id`` of objects."""
    delimiter: Annotated[str, AfterValidator(_usable_delimiter)] = ","
    encoding: Annotated[str, AfterValidator(_usable_encoding)] = "utf-8-sig"
    """An encoding of Python. ``utf-8-sig`` is UTF-8, with or without a byte order mark."""
    require_line_end: bool = True
    """Whether a read fails if the last line has no line end, because the file may be truncated."""
    line_breaks: bool = False
    """Whether cells may contain line breaks. Otherwise a row of several lines is malformed, because an unbalanced quote
    looks the same."""
    null_is_absent: NullIsAbsent = frozenset()
    """The columns in which an empty cell means a missing field: no end in ``expiresAt``, inherited in ``accessType``.
    In other columns that decide about access, an empty cell makes the row malformed."""
    timezone: TimeZone = "UTC"
    """The time zone of times without a zone."""

    @model_validator(mode="after")
    def _rules_fit(self) -> "CsvSourceSettings":
        if self.map and self.kind is not None:
            raise ValueError("kind and map exclude each other: the rows are records of one kind, or objects for rules")
        if self.map and (self.null_is_absent or self.timezone != "UTC"):
            raise ValueError("null_is_absent and timezone have no effect with map, whose values are text; remove them")
        check_rule_sets(self.map, [ROWS])
        for number, rule in enumerate(self.map, start=1):
            if rule.each is not None:
                raise ValueError(f"map: rule {number}: rows have no members, so that each cannot be used")
        return self


class LdapSourceSettings(LdapConnectionSettings, SourceBase):
    """A directory in LDAP, with rules."""

    type: Literal["ldap"]
    map: RuleList

    @model_validator(mode="after")
    def _rules_fit(self) -> "LdapSourceSettings":
        check_rule_sets(self.map, self.sets_in_force(), "; add it to sets")
        for number, (rule, configured) in enumerate(zip(self.rules_in_force(), self.map, strict=True), start=1):
            for key, text in rule.expressions() if rule != configured else ():
                try:
                    language(IT, MEMBER).compile(text)
                except ExpressionError as error:
                    raise ValueError(f"map: rule {number}: {key}, with account_expiry, {error}") from None
        return self

    def rules_in_force(self) -> RuleList:
        """The rules. With ``account_expiry``, they end the access of expired accounts."""
        ends = self.preset_in_force().ends
        return tuple(_with_expiry(rule, ends) for rule in self.map)

    @property
    def source_name(self) -> str:
        return self.name or f"{self.server}/{self.base}"


def _with_expiry(rule: RuleSettings, ends: Mapping[str, str]) -> RuleSettings:
    """The rule, with the expiry of accounts. ``ends``: set → the attribute with the expiry.

    Users that it makes or disables are disabled if their account has expired. Its other records with a user get the
    expiry as their end.
    """
    attribute = next(iter(ends.values()), "") if rule.each else ends.get(rule.from_, "")
    if not attribute:
        return rule
    fields = rule.fields
    variable = MEMBER if rule.each else IT
    if (disabling := disabled_if(rule, f"has({variable}.{ACCOUNT_EXPIRED})")) is not None:
        return disabling
    can_end = rule.kind in RULE_KINDS and "expiresAt" in KINDS[rule.kind].field_names and "expiresAt" not in fields
    if not can_end or not fields.keys() & {"userId", "userAlias"}:
        return rule
    return rule.model_copy(update={rule.kind: {**fields, "expiresAt": f"{variable}.{attribute}"}})


class PushSourceSettings(SourceBase):
    """A source that contains pushes only."""

    type: Literal["push"]
    name: str = Field(min_length=1, max_length=200)
    """The name of the source in URLs and reports."""
    changes: AcceptedChanges


class ScimSourceSettings(SourceBase):
    """Users and groups that a directory pushes with SCIM, with rules."""

    not_of_the_records = frozenset({"tokens"})

    type: Literal["scim"]
    name: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(name_in_address)]
    """The name of the source in URLs and reports."""
    tokens: Annotated[tuple[Token, ...], Field(min_length=1)]
    """Bearer tokens of the directory. Any of them is accepted, so that they can be rotated."""
    map: RuleList

    @model_validator(mode="after")
    def _rules_fit(self) -> "ScimSourceSettings":
        if self.changes is not None:
            raise ValueError("changes: a directory pushes with tokens; let others push to a source of type push")
        check_rule_sets(self.map, (USERS, GROUPS))
        for number, rule in enumerate(self.map, start=1):
            if rule.each is not None and rule.from_ != GROUPS:
                raise ValueError(f"map: rule {number}: only {GROUPS} have members")
        return self

    def rules_in_force(self) -> RuleList:
        """The rules. Users who are not active are disabled, and provide no other access."""
        return tuple(map(active_only, self.map))


class SqlSourceSettings(SqlSettings, SourceBase):
    """A database."""

    not_of_the_records = frozenset({"connect_timeout", "answer_timeout"})

    def identity(self) -> dict[str, object]:
        return super().identity() | {"place": self.database}


class HttpSourceSettings(HttpSettings, SourceBase):
    """An API of an identity provider, with rules."""

    not_of_the_records = frozenset({"connect_timeout", "answer_timeout", "max_in_flight", "ca_file", "proxy"})

    type: Literal["http"]
    name: str = Field(min_length=1, max_length=200)
    map: RuleList

    @model_validator(mode="after")
    def _rules_fit(self) -> "HttpSourceSettings":
        known = self.sets_in_force()
        check_rule_sets(self.map, known, "; add it to sets")
        for number, rule in enumerate(self.map, start=1):
            if rule.each is not None and known[rule.from_].members is None:
                raise ValueError(f"map: rule {number}: {rule.from_} has no members; describe them in sets")
        return self


_BuiltIn = (
    FileSourceSettings
    | CsvSourceSettings
    | LdapSourceSettings
    | SqlSourceSettings
    | HttpSourceSettings
    | PushSourceSettings
    | ScimSourceSettings
)
_BUILT_IN: TypeAdapter[_BuiltIn] = TypeAdapter(Annotated[_BuiltIn, Field(discriminator="type")])
_TYPES = [get_args(model.model_fields["type"].annotation)[0] for model in get_args(_BuiltIn)]


def _source_settings(value: Any) -> SourceBase:
    if isinstance(value, PluginSettings):
        return value
    type_ = value.get("type") if isinstance(value, dict) else None
    plugin = plugin_of(type_) if isinstance(type_, str) and type_ not in _TYPES else None
    return _BUILT_IN.validate_python(value) if plugin is None else plugin_settings(plugin, value)


SourceSettings = Annotated[_BuiltIn | PluginSettings, PlainValidator(_source_settings)]


def tokens_of(source: SourceSettings) -> tuple[SecretStr, ...]:
    """The tokens with which something may be pushed to a source."""
    if isinstance(source, ScimSourceSettings):
        return source.tokens
    return source.changes.tokens if source.changes is not None else ()


class DirectorySettings(SettingsSection):
    """The section ``directory``."""

    sources: Annotated[tuple[SourceSettings, ...], Field(min_length=1)] = ()
    """The sources, the most authoritative first: if several provide a record, that of the first is used. There is no
    default, so that no operator syncs a directory by accident."""
    grace: int = Field(default=0, ge=0, le=366 * 24 * 3600)
    """Seconds for which removed items are kept in the backend. Their access ends at once."""
    read_timeout: float = Field(default=900, ge=0, le=7 * 24 * 3600)
    """Seconds for which a reader waits for a source in total. The whole read may take ten times as long. 0: no
    limit."""
    spool: Path | None = None
    """The folder for the members of groups between reads. Default: beside a SQLite database, otherwise the system's
    folder for temporary files."""
    guard: GuardSettings = Field(default_factory=GuardSettings)
    """How much a read of one source, and a read of all sources together, may remove without confirmation."""
    max_age: int = Field(default=0, ge=0, le=366 * 24 * 3600)
    """Seconds after the last successful read at which ``/readyz`` fails. 0: never."""

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
            for token in tokens_of(source):
                owner = owners.setdefault(token.get_secret_value(), source.source_name)
                if owner != source.source_name:
                    raise ValueError(
                        f"the sources {owner!r} and {source.source_name!r} accept the same token;"
                        " create one for each, because a client could push to both with it"
                    )
        return self
