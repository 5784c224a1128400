"""``make bench``: runs the measurements, prints a table, and writes the figures as JSON.

make bench                            # everything at full size
make bench ARGS="provider --scale 0.1"
make bench ARGS="provider sync planning features console --postgres postgresql+psycopg://postgres@127.0.0.1/postgres"
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from app.foundation.logs import LogSettings, configure_logs
from tests.bench.alternatives import bench_alternatives
from tests.bench.console import bench_console
from tests.bench.decisions import bench_decisions
from tests.bench.features import bench_features
from tests.bench.impact import bench_impact
from tests.bench.judgments import bench_judgments
from tests.bench.lists import bench_lists
from tests.bench.names import bench_names
from tests.bench.nodes import bench_nodes
from tests.bench.provider import bench_provider
from tests.bench.provider_under_sync import bench_provider_under_sync
from tests.bench.pushes import bench_pushes
from tests.bench.reading import bench_reading
from tests.bench.shapes import bench_shapes
from tests.bench.sources import bench_sources
from tests.bench.sync import bench_planning, bench_sync

BENCHES: dict[str, tuple[str, Callable[[Path, argparse.Namespace], dict[str, object]]]] = {
    "provider": (
        "Permission calls of 20 questions, beside a bare Flask route",
        lambda folder, options: bench_provider(
            folder, scale=options.scale, rounds=options.rounds, seconds=options.seconds, postgres=options.postgres
        ),
    ),
    "decisions": (
        "Decisions in process from the index, small and large: time, memory, and how long the index takes to build",
        lambda folder, options: {
            **bench_decisions(folder, scale=options.scale, postgres=options.postgres, is_profiled=options.profile),
            **bench_shapes(folder / "shapes", scale=options.scale, postgres=options.postgres),
        },
    ),
    "alternatives": (
        "Decisions with PyCasbin and Cedar at the largest size that each can hold, beside the index",
        lambda folder, options: bench_alternatives(folder, scale=options.scale),
    ),
    "lists": (
        "First pages of what a user may open, and of who may open a document",
        lambda folder, options: bench_lists(
            folder, scale=options.scale, rounds=options.rounds, postgres=options.postgres
        ),
    ),
    "impact": (
        "The access impact of a group that leaves",
        lambda folder, options: bench_impact(folder, scale=options.scale, postgres=options.postgres),
    ),
    "reading": (
        "A first read of a directory of 1,000,000 records, beside a bare COPY of its rows",
        lambda folder, options: bench_reading(folder, scale=options.scale, postgres=options.postgres),
    ),
    "nodes": (
        "From the commit of a revision until the last of ten nodes answers by it",
        lambda folder, options: bench_nodes(folder, rounds=options.rounds, postgres=options.postgres),
    ),
    "sync": (
        "A first sync, its calls alone, and a run with nothing to do",
        lambda folder, options: bench_sync(
            folder, scale=options.scale, rounds=min(options.rounds, 3), postgres=options.postgres
        ),
    ),
    "syncing": (
        "Permission calls while a sync runs and the directory is read again and again",
        lambda folder, options: bench_provider_under_sync(folder, scale=options.scale),
    ),
    "judgments": (
        "Searching 100,000 judgments",
        lambda folder, options: bench_judgments(folder, options.scale),
    ),
    "features": (
        "Every operation on feature data, small and large",
        lambda folder, options: bench_features(folder, options.scale, postgres=options.postgres),
    ),
    "sources": (
        "Directories that are read where they are, and what is pushed",
        lambda folder, options: {
            **bench_sources(folder, scale=options.scale, rounds=min(options.rounds, 5), postgres=options.postgres),
            **bench_pushes(folder / "pushes", scale=options.scale),
            **(
                bench_pushes(folder / "pushes", scale=options.scale, postgres=options.postgres)
                if options.postgres
                else {}
            ),
        },
    ),
    "console": (
        "Every page of the console beside a large installation, and permission calls while people follow a run",
        lambda folder, options: bench_console(
            folder, scale=options.scale, rounds=options.rounds, postgres=options.postgres
        ),
    ),
    "names": (
        "Searching by name, and the history of an item, in a large installation",
        lambda folder, options: bench_names(
            folder, scale=options.scale, rounds=options.rounds, postgres=options.postgres
        ),
    ),
    "planning": (
        "Reading and planning everything, small and large",
        lambda folder, options: bench_planning(folder, scale=options.scale, postgres=options.postgres),
    ),
}


def main() -> int:
    """Runs the named benchmarks, or all."""
    parser = argparse.ArgumentParser(prog="make bench", description="Measure speed and memory.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHES)}")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is the full size")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each side of a comparison")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long a round takes")
    parser.add_argument(
        "--postgres",
        metavar="URL",
        help="measure on this server, not on SQLite; all but alternatives, syncing and judgments",
    )
    parser.add_argument("--profile", action="store_true", help="profile decisions, too")
    parser.add_argument("--json", type=Path, help="write the figures into this file, too")
    options = parser.parse_args()
    if unknown := set(options.names) - set(BENCHES):
        parser.error(f"no bench is called {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    console = Console()
    configure_logs(LogSettings(level="warning"))
    figures: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory(prefix="usher-bench-") as folder:
        for name in options.names or BENCHES:
            title, bench = BENCHES[name]
            place = Path(folder) / name
            place.mkdir()
            figures[name] = bench(place, options)
            show(console, title, figures[name])
    text = json.dumps(figures, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    return 0


def show(console: Console, title: str, figures: dict[str, object]) -> None:
    """Prints the figures of one benchmark."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in figures.items():
        table.add_row(name, str(value))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
