"""The verdict on a question: whether the user has access, as what, and until when."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """``expires_at`` is epoch milliseconds."""

    has_access: bool
    access_role: str | None = None
    expires_at: int | None = None


DENIED = AccessVerdict(has_access=False)
