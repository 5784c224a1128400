"""Makes the sources of a configuration."""

from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from app.directory.bounded import BoundedSource, Policy
from app.directory.connector import ALL_ATTRIBUTES, Connector, Objects, ReadError, RequestedFields
from app.directory.connectors.scim.rules import USERS
from app.directory.file import FileSource
from app.directory.mapping.settings import RuleList
from app.directory.plugins import PluginConnector, PluginSettings
from app.directory.pushes import PushedSource
from app.directory.settings import (
    ROWS,
    CsvSourceSettings,
    DirectorySettings,
    HttpSourceSettings,
    LdapSourceSettings,
    PushSourceSettings,
    ScimSourceSettings,
    SourceSettings,
    SqlSourceSettings,
)
from app.directory.source import EVERYTHING, ReadRequest, Source
from app.foundation.clock import Clock, utc_now

if TYPE_CHECKING:
    from app.directory.connectors.scim.objects import OpenStore
    from app.directory.mapping.rules import Rules

# Connectors and rules are imported only if a source needs them: some of their libraries are extras.


def sources_from_settings(
    settings: DirectorySettings,
    *,
    stop: Event | None = None,
    spool: Path | None = None,
    store: "OpenStore | None" = None,
    clock: Clock = utc_now,
) -> list[Source]:
    """The sources, in the order of the configuration. Nothing is opened yet.

    ``stop`` ends running reads. ``spool``: the folder for data that sources keep between reads. Without it, sources
    with members support full reads only. ``store``: opens Usher's database, where SCIM sources are stored.
    """
    return [
        BoundedSource(
            source_from_settings(source, spool, store, clock),
            timeout=settings.read_timeout if source.timeout is None else source.timeout,
            stop=stop,
            policy=Policy(
                guard=source.guard,
                poll=source.poll,
                full_every=source.full_every,
                digest=source.digest,
                only_pushed=isinstance(source, PushSourceSettings),
            ),
        )
        for source in settings.sources
    ]


def source_from_settings(
    settings: SourceSettings, spool: Path | None = None, store: "OpenStore | None" = None, clock: Clock = utc_now
) -> Source:
    """The source, without limits and policy."""
    if isinstance(settings, LdapSourceSettings):
        return _ldap_source(settings, spool, clock)
    if isinstance(settings, SqlSourceSettings):
        return _sql_source(settings)
    if isinstance(settings, HttpSourceSettings):
        return _http_source(settings, spool, clock)
    if isinstance(settings, CsvSourceSettings):
        return _csv_source(settings)
    if isinstance(settings, PluginSettings):
        return _mapped_source(settings.source_name, PluginConnector(settings), _rules(settings.map), spool)
    if isinstance(settings, PushSourceSettings):
        return PushedSource(settings.source_name)
    if isinstance(settings, ScimSourceSettings):
        return _scim_source(settings, store)
    return FileSource(settings)


class _MissingLdapLibrary:
    """Replaces the LDAP connector if its library is missing. Every read fails."""

    def read(self, wanted: RequestedFields, request: ReadRequest = EVERYTHING) -> Objects:  # noqa: ARG002 - as the port has it
        yield ReadError(
            "the library for LDAP is not installed: make ldap, or pip install 'usher[ldap]', adds it (it is compiled;"
            " Debian: gcc libldap2-dev libsasl2-dev python3-dev)"
        ).end


def _ldap_source(settings: LdapSourceSettings, spool: Path | None, clock: Clock) -> Source:
    connector: Connector = _MissingLdapLibrary()
    try:
        from app.directory.connectors.ldap.connector import LdapConnector  # noqa: PLC0415 - see above

        connector = LdapConnector(settings, clock)
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("ldap", "_ldap", "pyasn1", "pyasn1_modules"):
            raise
    rules = _rules(settings.rules_in_force(), settings.preset_in_force().always)
    return _mapped_source(settings.source_name, connector, rules, spool)


def _sql_source(settings: SqlSourceSettings) -> Source:
    from app.directory.connectors.sql.source import SqlConnector, SqlDatabase, SqlSource  # noqa: PLC0415 - as above

    name = settings.source_name
    database = SqlDatabase(
        settings.parsed_url,
        settings.ordered_queries(),
        timezone=settings.timezone,
        connect_timeout=settings.connect_timeout,
        answer_timeout=settings.answer_timeout,
    )
    if not settings.map:
        return SqlSource(name, database)
    # Every row has all columns of its query, so that a missing value is NULL.
    rules = _rules(settings.map, {query: frozenset({ALL_ATTRIBUTES}) for query in settings.queries})
    if not database.has_records:
        return _mapped_source(name, SqlConnector(database.open), rules)
    return SqlSource(
        name, database, wanted=rules.wanted, mapped=lambda connector: _mapped_source(name, connector, rules)
    )


def _csv_source(settings: CsvSourceSettings) -> Source:
    from app.directory.csv_file import CsvConnector, CsvSource  # noqa: PLC0415 - as above

    if not settings.map:
        return CsvSource(settings)
    # Every row has all columns, so that an empty cell is NULL.
    rules = _rules(settings.map, {ROWS: frozenset({ALL_ATTRIBUTES})})
    return _mapped_source(settings.source_name, CsvConnector(settings), rules)


def _http_source(settings: HttpSourceSettings, spool: Path | None, clock: Clock) -> Source:
    from app.directory.connectors.http.connector import HttpConnector  # noqa: PLC0415 - as above

    rules = _rules(settings.map, settings.preset_in_force().always)
    return _mapped_source(settings.source_name, HttpConnector(settings, clock=clock), rules, spool)


def _scim_source(settings: ScimSourceSettings, store: "OpenStore | None") -> Source:
    from app.directory.connectors.scim.objects import ScimSource  # noqa: PLC0415 - as above

    return ScimSource(settings.source_name, scim_rules(settings), store)


def scim_rules(settings: ScimSourceSettings) -> "Rules":
    """The rules for what a directory pushes with SCIM."""
    return _rules(settings.rules_in_force(), {USERS: frozenset({"active"})})


def _rules(rules: RuleList, always: Mapping[str, frozenset[str]] | None = None) -> "Rules":
    from app.directory.mapping.rules import Rules  # noqa: PLC0415 - as above

    return Rules(rules, always)


def _mapped_source(name: str, connector: Connector, rules: "Rules", spool: Path | None = None) -> Source:
    from app.directory.mapping.source import MappedSource  # noqa: PLC0415 - as above
    from app.directory.mapping.spool_file import SpoolFile  # noqa: PLC0415 - as above

    return MappedSource(name, connector, rules, SpoolFile.of(spool, name))
