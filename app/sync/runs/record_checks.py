"""Checks records that are valid but suspicious, such as ids that differ only in case.

The commands that check the directory report them. Runs accept such records.
"""

import re
from collections.abc import Iterator

from sqlalchemy import Connection, text

from app.access.kinds import KINDS, NAMED_KINDS
from app.access.problems import Problem, ProblemSort
from app.access.records import Record, User
from app.contract.limits import EMAIL_LENGTH, TEXT_LENGTH
from app.directory.source import EVERYTHING, Found, Reading, ReadRequest, Remark, Source
from app.foundation.text import quoted

_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")

_TWINS = """
SELECT MIN({id}) AS one, MAX({id}) AS other, MAX(place) AS place FROM source_{kind}
GROUP BY {within}LOWER({id}) HAVING COUNT(DISTINCT {id}) > 1 ORDER BY 1 LIMIT :limit
"""

_SHARED_ADDRESSES = """
SELECT LOWER(json_extract(payload, '$.email')) AS email, MIN(user_id) AS one, MAX(user_id) AS other,
  COUNT(DISTINCT user_id) AS users, MAX(place) AS place
FROM source_user WHERE json_extract(payload, '$.email') <> ''
GROUP BY 1 HAVING COUNT(DISTINCT user_id) > 1 ORDER BY 1 LIMIT :limit
"""

_ADDRESSES_AS_ALIASES = """
SELECT COUNT(*) AS users, MIN(a.value) AS alias, MIN(u.place) AS place FROM source_user u, json_each(u.aliases) a
WHERE a.value LIKE '%@%' GROUP BY u.source_id ORDER BY u.source_id LIMIT :limit
"""

_DISABLED_BY_ADDRESS = """
SELECT COUNT(*) AS fills, MIN(user_alias) AS alias, MIN(place) AS place FROM source_fill
WHERE disabled AND user_alias LIKE '%@%' GROUP BY source_id ORDER BY source_id LIMIT :limit
"""


class CheckedSource:
    """A source that adds remarks about suspicious records."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def name(self) -> str:
        return self._source.name

    def read(self, request: ReadRequest = EVERYTHING) -> Reading:
        """Reads the source and adds remarks."""
        for step in self._source.read(request):
            yield step
            if isinstance(step, Found):
                for reason in check_record(step.record):
                    yield Remark(step.place, reason)


def check_record(record: Record) -> Iterator[str]:
    """Reasons why a record is suspicious."""
    for value in record.key[1:]:
        if value != value.strip():
            yield f"the id {quoted(value)} begins or ends with a blank"
    if name := NAMED_KINDS.get(record.kind):
        length = len(getattr(record, name.attribute))
        if length > TEXT_LENGTH:
            yield f"{name.name}: has {length:,} characters; a backend takes at most {TEXT_LENGTH:,} and refuses more"
    if isinstance(record, User) and record.email:
        if len(record.email) > EMAIL_LENGTH:
            yield f"email: has {len(record.email):,} characters; a backend takes at most {EMAIL_LENGTH:,}"
        elif not _ADDRESS.fullmatch(record.email):
            yield f"email: {quoted(record.email)} is not an e-mail address"


def similar_records(connection: Connection, limit: int) -> Iterator[Problem]:
    """Remarks about records that may be duplicates. ``connection``: to the SQLite database of a check."""
    for place, reason in _similar_records(connection, limit):
        yield Problem(ProblemSort.REMARK, "", place, reason)


def _similar_records(connection: Connection, limit: int) -> Iterator[tuple[str, str]]:
    """The places and reasons."""
    for noun in NAMED_KINDS:
        *within, item = KINDS[noun].record.key_fields
        query = _TWINS.format(kind=noun, id=item, within="".join(f"{name}, " for name in within))
        for row in connection.execute(text(query), {"limit": limit}):
            reason = (
                f"the {noun} ids {quoted(row.one)} and {quoted(row.other)} differ only in case: they are two {noun}s"
            )
            yield row.place, reason
    for row in connection.execute(text(_SHARED_ADDRESSES), {"limit": limit}):
        more = f" and {row.users - 2} more" if row.users > 2 else ""
        reason = f"email: {quoted(row.email)} belongs to the users {quoted(row.one)}, {quoted(row.other)}{more}"
        yield row.place, reason
    for row in connection.execute(text(_ADDRESSES_AS_ALIASES), {"limit": limit}):
        reason = (
            f"aliases: {row.users:,} are addresses, such as {quoted(row.alias)}; users who can change their own address"
            " get what is granted to another, so only administrators may be able to write that attribute"
        )
        yield row.place, reason
    for row in connection.execute(text(_DISABLED_BY_ADDRESS), {"limit": limit}):
        reason = (
            f"userAlias: {row.fills:,} records that disable a user name the user by an address, such as"
            f" {quoted(row.alias)}; use a lasting id such as employeeID"
        )
        yield row.place, reason
