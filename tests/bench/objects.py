"""Measures the read of a CSV file in an object store, beside the same file on the disk."""

import os
import statistics
from pathlib import Path

from app.directory.configured import source_from_settings
from app.directory.settings import CsvSourceSettings
from app.directory.source import End, Found, Verdict
from tests.bench.stopwatch import Stopwatch, peak_of, ratio
from tests.directory.moto import CREDENTIALS, missing, put, running_moto


def bench_objects(folder: Path, *, scale: float, rounds: int) -> dict[str, object]:
    """A CSV file with 1,000,000 users: on the disk and in moto's S3 server, and the memory of a read."""
    if reason := missing():
        return {"S3": f"not measured: {reason}"}
    folder.mkdir(parents=True)
    os.environ |= CREDENTIALS
    number = max(int(1_000_000 * scale), 1_000)
    local, small = folder / "people.csv", folder / "few.csv"
    _write(local, number)
    _write(small, number // 10)
    with running_moto(folder / "log") as server:
        for path in (local, small):
            put(server, path.name, path.read_bytes())
        of_disk, of_store = [], []
        for _ in range(rounds):
            began = Stopwatch()
            assert read_whole(str(local)) == number
            of_disk.append(began.read())
            began = Stopwatch()
            assert read_whole("s3://bucket/people.csv", server) == number
            of_store.append(began.read())
        code = "from tests.bench.objects import read_whole; read_whole({!r}, {!r})"
        few, many = (peak_of(code.format(f"s3://bucket/{path.name}", server)) for path in (small, local))
    wall, cpu = ratio(of_disk, of_store)
    disk_took, took = (statistics.median(seconds for seconds, _ in some) for some in (of_disk, of_store))
    return {
        "S3: CSV rows to records, rows/s; from the disk": f"{number / took:,.0f}; {number / disk_took:,.0f}",
        "S3: of the read from the disk, by the clock; by CPU of this process": f"{wall:.2f}; {cpu:.2f}",
        "S3: memory of a read, MB; of a tenth of the rows": f"{many / 1e6:.0f}; {few / 1e6:.0f}",
    }


def _write(path: Path, number: int) -> None:
    with path.open("w") as file:
        file.write("userId,name,email,department\n")
        for one in range(number):
            file.write(f"u{one},First{one % 997} Last{one},u{one}@acme.example,d{one % 50}\n")


def read_whole(path: str, server: str = "") -> int:
    """The number of records of a complete read."""
    store = {"store": {"endpoint": server}} if server else {}
    settings = CsvSourceSettings.model_validate({"type": "csv", "path": path, "kind": "user", **store})
    count = 0
    for step in source_from_settings(settings).read():
        count += type(step) is Found
        assert type(step) is not End or step.verdict is Verdict.COMPLETE, step
    return count
