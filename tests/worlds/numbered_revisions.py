"""A directory whose revision determines every answer, so that an answer of two revisions is found.

Each revision has its own set of members. ``Revisions.read`` adds a revision; ``answers`` is what each of its questions
must return, and ``ask`` what an index returns.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from random import Random

from sqlalchemy import Engine

from app.access.decision.decide import DecisionPolicy, PlainQuestion, decide
from app.access.decision.view import AccessView
from app.access.index.entries import all_entries
from app.access.index.file import Stamp
from app.access.problem_list import ProblemList
from app.access.records import Membership, Organization, Record, User
from app.access.refresh.reads import ReadResult
from app.access.refresh.refresh import Refresh
from app.access.revisions import latest_revision
from app.foundation.database.engine import reading

USERS = 300
QUESTIONS = [
    PlainQuestion(user_id=f"user{number}", type="organization", resource_id="acme", organization_id="acme")
    for number in range(0, USERS, 12)
]
"""Their entries are on several pages of an index."""


def members(revision: int) -> set[str]:
    """The ids of the users that have access at this revision: about half of them. One in twenty changes."""
    lot = Random(0)
    are = [lot.random() < 0.5 for _ in range(USERS)]
    for number in range(revision):
        lot.seed(number)
        # The first user changes each time, so that each directory is another revision.
        for user in (0, *lot.sample(range(USERS), USERS // 20)):
            are[user] = not are[user]
    return {f"user{number}" for number, is_member in enumerate(are) if is_member}


@cache
def answers(revision: int) -> str:
    """What the questions return at this revision: a digit for each."""
    are = members(revision)
    return "".join(str(int(question.user_id in are)) for question in QUESTIONS)


def ask(view: AccessView) -> tuple[int, str]:
    """The revision of the view, and its answers."""
    now = datetime.now(UTC)
    return view.revision, "".join(str(int(decide(view, each, now, DecisionPolicy()).has_access)) for each in QUESTIONS)


class Revisions:
    """The revisions of a database."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.others = 0
        """The number of users that no question is about. More of them make the index larger."""
        self.entries: dict[Stamp, dict[bytes, bytes]] = {}
        """The entries that an index of each revision has."""

    def read(self) -> Stamp:
        """Reads the directory of the next revision."""
        with reading(self.engine) as connection:
            revision = latest_revision(connection)[0] + 1
        with Refresh(self.engine, clock=lambda: datetime.now(UTC), problems=ProblemList()) as refresh:
            refresh.begin(["company"])
            for record in _records(members(revision), self.others):
                refresh.staging.add(record, "company:1")
            refresh.staging.end(ReadResult(records=USERS + self.others))
            refresh.finish(accept_empty=["company"])
        with reading(self.engine) as connection:
            number, created_at = latest_revision(connection)
            assert number == revision
            assert created_at is not None
            stamp = Stamp(number, created_at)
            self.entries[stamp] = dict(all_entries(connection))
        return stamp


def _records(are_members: set[str], others: int) -> Sequence[Record]:
    return [
        Organization(organization_id="acme", organization_name="Acme"),
        *(User(user_id=f"user{number}", name="", email="") for number in range(USERS)),
        *(User(user_id=f"{number} is another user", name="", email="") for number in range(others)),
        *(Membership(organization_id="acme", user_id=user) for user in sorted(are_members)),
    ]
