"""The source objects that a configuration asks for."""

from pathlib import Path
from threading import Event

from app.directory.connector import ALL_ATTRIBUTES
from app.directory.file import FileSource
from app.directory.guarded import GuardedSource
from app.directory.policy import Policy
from app.directory.pushed import PushedSource
from app.directory.settings import (
    DirectorySettings,
    LdapSourceSettings,
    PushSourceSettings,
    SourceSettings,
    SqlSourceSettings,
)
from app.directory.source import Source
from app.foundation.clock import Clock, utc_now

# What reads the other sorts of source is imported where one is configured.


def sources_from_settings(
    settings: DirectorySettings, *, stop: Event | None = None, spool: Path | None = None, clock: Clock = utc_now
) -> list[Source]:
    """One source per entry, in the order of the configuration; nothing is opened yet.

    ``stop`` ends a read at once. ``spool``: the folder for what sources keep between reads; without one, those that ask
    for members can only be read as a whole, which suits whoever only looks.
    """
    return [
        GuardedSource(
            source_from_settings(source, spool, clock),
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


def source_from_settings(settings: SourceSettings, spool: Path | None = None, clock: Clock = utc_now) -> Source:
    """The source of one entry, without a guard before it."""
    if isinstance(settings, LdapSourceSettings):
        from app.directory.connectors.ldap.connector import LdapConnector  # noqa: PLC0415 - as above
        from app.directory.mapping.rules import Rules  # noqa: PLC0415 - as above
        from app.directory.mapping.source import MappedSource  # noqa: PLC0415 - as above
        from app.directory.mapping.spool_file import SpoolFile  # noqa: PLC0415 - as above

        spooled = SpoolFile.of(spool, settings.source_name)
        rules = Rules(settings.rules_in_force(), settings.preset_in_force().always)
        return MappedSource(settings.source_name, LdapConnector(settings, clock), rules, spooled)
    if isinstance(settings, PushSourceSettings):
        return PushedSource(settings.source_name)
    if isinstance(settings, SqlSourceSettings):
        return sql_source(settings)
    return FileSource(settings.path, name=settings.source_name, require_end=settings.require_end)


def sql_source(settings: SqlSourceSettings) -> Source:
    """A source of queries."""
    from app.directory.connectors.sql.reading import SqlDatabase  # noqa: PLC0415 - as above
    from app.directory.connectors.sql.snapshot import parse_source_url  # noqa: PLC0415 - as above
    from app.directory.connectors.sql.source import SqlConnector, SqlSource  # noqa: PLC0415 - as above
    from app.directory.mapping.rules import Rules  # noqa: PLC0415 - as above
    from app.directory.mapping.source import MappedSource  # noqa: PLC0415 - as above

    database = SqlDatabase(
        parse_source_url(settings.url.get_secret_value()),
        settings.made_queries(),
        timezone=settings.timezone,
        connect_timeout=settings.connect_timeout,
        answer_timeout=settings.answer_timeout,
    )
    if not settings.map:
        return SqlSource(settings.source_name, database)
    # Rows have all columns of their query, so what is missing is NULL.
    rules = Rules(settings.map, {name: frozenset({ALL_ATTRIBUTES}) for name in settings.queries})
    if not database.gives_records:
        return MappedSource(settings.source_name, SqlConnector(database), rules)
    return SqlSource(
        settings.source_name,
        database,
        wanted=rules.wanted,
        mapped=lambda connector: MappedSource(settings.source_name, connector, rules),
    )
