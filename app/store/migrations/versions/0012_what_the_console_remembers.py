"""What pages show that nothing kept so far: parts of plans, counts and names of the access model, what processes did

Revision: 0012, after 0011.
"""

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _plans()
    _access()
    _processes()


def _plans() -> None:
    """Parts and effects of plans, what items were before, answers of calls, stages of runs."""


def _access() -> None:
    """Counts and names of the access model, problems of the directory."""


def _processes() -> None:
    """What each process did minute by minute, examinations, sign-ins under way."""


def downgrade() -> None:
    _drop_processes()
    _drop_access()
    _drop_plans()


def _drop_processes() -> None:
    pass


def _drop_access() -> None:
    pass


def _drop_plans() -> None:
    pass
