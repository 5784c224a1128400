"""Measures the connectors of sources: one function for each kind."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.commands.schema import METADATA
from app.directory.configured import source_from_settings, sources_from_settings
from app.directory.settings import DirectorySettings, LdapSourceSettings
from app.directory.source import End, Found, Verdict
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.foundation.processes import freeze_garbage_collector
from app.sync.runs.directory_reads import read_directory
from tests.bench.http_api import bench_http
from tests.bench.mapping import bench_mapping
from tests.bench.objects import bench_objects
from tests.bench.rows import bench_rows
from tests.bench.scim import bench_scim
from tests.bench.stopwatch import Stopwatch, peak_of, ratio
from tests.ldap import slapd

LDAP_RULES: Sequence[Mapping[str, object]] = (
    {
        "from": "users",
        "when": "has(it.mail)",
        "aliases": ["it.mail"],
        "user": {
            "userId": "it.entryUUID",
            "name": "it.displayName",
            "email": "lower(it.mail)",
            "department": "it.departmentNumber",
        },
    },
    {"from": "groups", "organization": {"organizationId": "it.cn", "organizationName": "it.cn"}},
    {
        "from": "groups",
        "each": "members",
        "membership": {"organizationId": "it.cn", "userId": "member.userId", "accessRole": '"viewer"'},
    },
)


def bench_sources(folder: Path, *, scale: float, rounds: int, postgres: str | None) -> dict[str, object]:
    """Runs all of them, each in its own folder, with the garbage collector frozen as in a worker."""
    freeze_garbage_collector()
    return (
        bench_mapping(folder / "mapping", scale=scale, rounds=rounds)
        | bench_http(scale=scale, rounds=rounds)
        | bench_ldap(folder / "ldap", scale=scale, rounds=rounds)
        | bench_scim(folder / "scim", scale=scale, rounds=rounds, postgres=postgres)
        | bench_rows(folder / "rows", scale=scale, rounds=rounds, postgres=postgres)
        | bench_objects(folder / "objects", scale=scale, rounds=rounds)
    )


def bench_ldap(folder: Path, *, scale: float, rounds: int) -> dict[str, object]:
    """A directory in OpenLDAP: read whole beside the bare search in pages, its changes, and memory for ten times as
    many people."""
    if reason := slapd.programs():
        return {"LDAP": f"not measured: {reason}"}
    people, groups = max(int(20_000 * scale), 200), max(int(500 * scale), 10)
    folder.mkdir(parents=True)
    figures: dict[str, object] = {}
    server = slapd.Slapd(folder / "slapd", slapd.company(people, groups))
    with slapd.running(server):
        figures |= _full_reads(server, rounds)
        figures |= _changes(folder, server, min(100, people // 2))
        small = _peak_memory(server)
    large_server = slapd.Slapd(folder / "large", slapd.company(people * 10, groups, largest=people))
    with slapd.running(large_server):
        large = _peak_memory(large_server)
    figures["LDAP: memory of a read, MB; with ten times as many people, in groups as large; ratio"] = (
        f"{small / 1e6:.0f}; {large / 1e6:.0f}; {large / small:.2f}"
    )
    return figures


def _settings(server: slapd.Slapd) -> dict[str, Any]:
    return {
        "type": "ldap",
        "name": "people",
        "url": server.url,
        "base": slapd.SUFFIX,
        "preset": "openldap",
        "bind_dn": slapd.READER,
        "bind_password": slapd.PASSWORD,
        "map": LDAP_RULES,
    }


def _full_reads(server: slapd.Slapd, rounds: int) -> dict[str, object]:
    source = source_from_settings(LdapSourceSettings.model_validate(_settings(server)))
    connector, wanted = source.connector, source.rules.wanted  # type: ignore[attr-defined]
    entries = records = 0
    bare, objects, whole = [], [], []
    for _ in range(rounds):
        began = Stopwatch()
        entries = bare_paged_read(server)
        bare.append(began.read())
        began = Stopwatch()
        for _ in connector.read(wanted):
            pass
        objects.append(began.read())
        began = Stopwatch()
        records = 0
        for step in source.read():
            records += isinstance(step, Found)
            assert not isinstance(step, End) or step.verdict is Verdict.COMPLETE, step
        whole.append(began.read())
    wall, cpu = ratio(bare, whole)
    wall_objects, cpu_objects = ratio(bare, objects)
    took = statistics.median(seconds for seconds, _ in whole)
    return {
        "LDAP: entries, records": f"{entries:,}; {records:,}",
        "LDAP: bare paged read, entries/s": f"{entries / statistics.median(seconds for seconds, _ in bare):,.0f}",
        "LDAP: full read to records, entries/s; records/s": f"{entries / took:,.0f}; {records / took:,.0f}",
        "LDAP: of the bare paged read, by the clock; by CPU of this process": f"{wall:.2f}; {cpu:.2f}",
        "LDAP: the connector alone (objects), the same two": f"{wall_objects:.2f}; {cpu_objects:.2f}",
    }


def bare_paged_read(server: slapd.Slapd) -> int:
    """The same searches with the library alone; what comes is counted."""
    import ldap
    from ldap.controls.libldap import SimplePagedResultsControl

    connection = ldap.initialize(server.url)
    connection.simple_bind_s(slapd.READER, slapd.PASSWORD)
    count = 0
    for filter_, attributes in (
        ("(objectClass=inetOrgPerson)", ["entryUUID", "displayName", "mail", "departmentNumber"]),
        ("(objectClass=groupOfNames)", ["entryUUID", "cn", "member", "uniqueMember"]),
    ):
        cookie: Any = ""
        while True:
            paging = SimplePagedResultsControl(True, size=1000, cookie=cookie)
            message = connection.search_ext(slapd.SUFFIX, ldap.SCOPE_SUBTREE, filter_, attributes, serverctrls=[paging])
            _, data, _, controls, _, _ = connection.result4(message, 1, 60)
            count += len(data)
            cookie = controls[0].cookie
            if not cookie:
                break
    connection.unbind_ext()
    return count


def _changes(folder: Path, server: slapd.Slapd, number: int) -> dict[str, object]:
    """People of whom something changes, and a group that gains one: until the access model has it."""
    import ldap

    engine = open_engine(f"sqlite:///{folder}/usher.db")
    METADATA.create_all(engine)
    directory = DirectorySettings.model_validate({"sources": [_settings(server)]})
    sources = sources_from_settings(directory, spool=folder / "spool")
    first = read_directory(engine, sources, clock=utc_now)
    assert first.sources[0].verdict is Verdict.COMPLETE, first.sources[0].reason
    connection = ldap.initialize(server.url)
    connection.simple_bind_s(slapd.ADMIN, slapd.PASSWORD)
    took = []
    for round_ in range(3):
        for person in range(number):
            name = f"Renamed {round_}".encode()
            connection.modify_s(slapd.person_dn(person), [(ldap.MOD_REPLACE, "displayName", [name])])
        began = Stopwatch()
        report = read_directory(engine, sources, clock=utc_now)
        took.append(began.read()[0])
        assert (report.sources[0].answered, report.changed) == ("changes", True), report.sources[0]
    engine.dispose()
    return {f"LDAP: {number} changes until the answers follow, s": f"{statistics.median(took):.2f}"}


def read_whole(port: int) -> None:
    """One read to its end, for the process whose memory is measured."""
    server = slapd.Slapd.__new__(slapd.Slapd)
    server.port = port
    source = source_from_settings(LdapSourceSettings.model_validate(_settings(server)))
    for step in source.read():
        assert not isinstance(step, End) or step.verdict is Verdict.COMPLETE, step


def _peak_memory(server: slapd.Slapd) -> float:
    return peak_of(f"from tests.bench.sources import read_whole; read_whole({server.port})")
