"""Measures the access impact of a change: a group of 10,000 members with grants on 1,000 documents is removed.

The changed directory is read as a candidate, in a separate process, as a dry run does. The impact is compared without
own grants of the members, and with ten of each member on these documents: they keep their role there, and no two of
them decide alike.
"""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import orjson
from sqlalchemy import Connection

from app.access.candidate import open_candidate
from app.access.decision.decide import DecisionPolicy
from app.access.impact.impact import access_changes
from app.directory.configured import sources_from_settings
from app.directory.settings import DirectorySettings
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine
from app.sync.runs.directory_reads import ReadOptions, read_directory
from tests.bench.databases import databases
from tests.bench.processes import command, write_settings

MEMBERS, DOCUMENTS, OWN_GRANTS = 10_000, 1_000, 10
AIM_SECONDS = 10
_ACME = {"organizationId": "acme"}
_CREW = {**_ACME, "organizationUserGroupId": "crew"}


def bench_impact(folder: Path, *, scale: float, postgres: str | None) -> dict[str, object]:
    """The figures; ``scale`` 1: 10,000 members and 1,000 documents."""
    members, documents = max(int(MEMBERS * scale), 10), max(int(DOCUMENTS * scale), 10)
    figures: dict[str, object] = {"members, documents": f"{members:,}, {documents:,}"}
    for name, own_grants in (("without own grants", 0), (f"with {OWN_GRANTS} own grants of each member", OWN_GRANTS)):
        place = folder / name.replace(" ", "-")
        place.mkdir(parents=True)
        file, changed = place / "directory.jsonl", place / "changed.jsonl"
        _write(file, _records(members, documents, own_grants, with_group=True))
        _write(changed, _records(members, documents, own_grants, with_group=False))
        with databases(place, postgres) as new_database:
            url = new_database("impact")
            sources = [{"type": "file", "path": str(file), "name": "people"}]
            config = str(write_settings(place, {"database_url": url, "directory": {"sources": sources}}))
            command(["db", "upgrade", "--config", config], place)
            command(["directory", "refresh", "--config", config], place)
            compare = [sys.executable, "-m", "tests.bench.impact", url, str(changed)]
            found = json.loads(subprocess.run(compare, capture_output=True, text=True, check=True).stdout)
        expected = members * (documents - own_grants)
        assert found["pairs"] == expected, (found, expected)
        figures |= {
            f"{name}: pairs that lose access": f"{found['pairs']:,}",
            f"{name}: s (at most {AIM_SECONDS})": round(found["seconds"], 2),
            f"{name}: peak memory MB; before the comparison": f"{found['peak']:.0f}; {found['before']:.0f}",
        }
    return figures


def _records(members: int, documents: int, own_grants: int, *, with_group: bool) -> Iterator[dict[str, object]]:
    chance = random.Random(3)
    yield {"kind": "organization", **_ACME, "organizationName": "Acme", "accessType": "restricted"}
    for number in range(2 * members):
        user = f"user-{number}"
        yield {"kind": "user", "userId": user, "name": user, "email": f"{user}@acme.example"}
        yield {"kind": "membership", **_ACME, "userId": user, "accessRole": "viewer"}
    for number in range(documents):
        yield {"kind": "document", **_ACME, "documentId": f"document-{number}", "documentName": f"Document {number}"}
    for number in range(members):
        for document in chance.sample(range(documents), own_grants):
            own = {"userId": f"user-{number}", "documentId": f"document-{document}", "accessRole": "viewer"}
            yield {"kind": "grant", **_ACME, **own}
    if with_group:
        yield {"kind": "group", **_CREW, "groupName": "Crew"}
        for number in range(members):
            yield {"kind": "groupMember", **_CREW, "userId": f"user-{number}"}
        for number in range(documents):
            yield {"kind": "grant", **_CREW, "documentId": f"document-{number}", "accessRole": "editor"}


def _write(path: Path, records: Iterable[dict[str, object]]) -> None:
    with path.open("wb") as file:
        file.writelines(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE) for record in records)


def main(url: str, file: str) -> None:
    """Compares the database with the candidate of the file, and prints the figures as JSON."""
    figures: dict[str, float] = {}

    def compare(connection: Connection, *_: object) -> None:
        figures["before"] = _peak_mb()
        began = time.perf_counter()
        changes = access_changes(connection, utc_now(), DecisionPolicy())
        figures["pairs"] = sum(change.users * len(change.resource_ids) for change in changes)
        figures["seconds"] = time.perf_counter() - began
        figures["peak"] = _peak_mb()

    settings = DirectorySettings.model_validate({"sources": [{"type": "file", "path": file, "name": "people"}]})
    with open_candidate(open_engine(url)) as candidate:
        read_directory(
            candidate,
            sources_from_settings(settings),
            ReadOptions(accept_shrink=["people"]),
            clock=utc_now,
            on_candidate=True,
            change_hook=compare,
        )
    print(json.dumps(figures))


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    main(*sys.argv[1:])
