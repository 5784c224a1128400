"""The questions of the demonstration, to the company in ``config/demo/directory.yaml``."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Case:
    """One question to the sample directory."""

    user_id: str
    type: Literal["organization", "folder", "document"]
    resource_id: str
    organization_id: str


CASES: tuple[Case, ...] = (
    Case("dario", "organization", "northwind", "northwind"),
    Case("liam", "document", "welcome", "northwind"),
    Case("xavier", "document", "welcome", "northwind"),
    Case("xavier", "document", "press-kit", "northwind"),
    Case("chiyo", "document", "project-aurora", "northwind"),
    Case("farah", "document", "project-aurora", "northwind"),
    Case("goran", "document", "project-aurora", "northwind"),
    Case("jun", "document", "project-aurora", "northwind"),
    Case("xavier", "document", "project-aurora", "northwind"),
    Case("wanda", "document", "q3-report", "northwind"),
    Case("wanda", "document", "salaries", "northwind"),
    Case("oskar", "document", "welcome", "northwind"),
    Case("sven", "folder", "laser", "lumen-labs"),
)
"""Members and outsiders; public, private and restricted; through groups in groups, nearer and farther grants, a user's
own grant over their group's, one that has expired, someone who has left."""
