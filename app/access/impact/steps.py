"""The limit of the work of a comparison, so that a dry run does not hang on a mass change."""

MAX_STEPS = 30_000_000
"""The limit for all organizations of a candidate. A step takes about a microsecond."""
STEPS_OF_DECISION = 10
"""A decision takes as long as these steps."""


class TooManyStepsError(Exception):
    """The changes are too many, or too different from each other, to compare."""


class Steps:
    """Counts the steps of a comparison: each pass over a user, resource or class, and each decision."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def spend(self, steps: int) -> None:
        """Raises ``TooManyStepsError`` if the limit is exceeded."""
        self._left -= steps
        if self._left < 0:
            raise TooManyStepsError
