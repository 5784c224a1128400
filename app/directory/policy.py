"""The policy of a source: what those who read it go by, beside what it gives."""

from dataclasses import dataclass

from app.directory.settings import GuardSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How one source is read."""

    guard: GuardSettings | None = None
    """How much a read of it may take away; None: as of all sources."""
    poll: float = 0
    """Seconds after which it is asked for changes between syncs; 0: it is not."""
    full_every: float = 24 * 3600
    """Seconds after which changes are not enough, and it is read as a whole; 0: it always is."""
    only_pushed: bool = False
    """Whether it holds what is pushed to it, and there is nothing to read."""
    digest: str = ""
    """Of the settings and rules that its records depend on: a cursor from under another one is not used."""
