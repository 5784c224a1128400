"""Long-running tests: ``python -m tests.soak faults --seconds 600 --seed 1``.

Each prints its seeds and results, and exits with 1 if a check failed.
"""

import argparse
import sys

from tests.soak import crashes, faults, fuzz, fuzz_backend, sources

SUITES = {"faults": faults, "fuzz": fuzz, "crashes": crashes, "fuzz-backend": fuzz_backend, "sources": sources}
"""Name → a module with ``add_arguments(parser)`` and ``run(arguments) -> int``."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    suites = parser.add_subparsers(dest="suite", required=True)
    for name, module in SUITES.items():
        module.add_arguments(suites.add_parser(name, help=(module.__doc__ or "").splitlines()[0]))
    arguments = parser.parse_args()
    return int(SUITES[arguments.suite].run(arguments))


if __name__ == "__main__":
    sys.exit(main())
