"""The console that all pages share: its dependencies, the menu, and the rendering of pages."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flask import Response, make_response, request
from pydantic import SecretStr
from sqlalchemy import Connection, Engine

from app.access.decision.decide import DecisionPolicy
from app.access.index.index import IndexState
from app.access.index.turns import DatabaseTurns
from app.access.revisions import current_revision
from app.access.source_states import source_states
from app.foundation.clock import Clock, epoch_ms
from app.http.throttle import FailedCredentials
from app.monitoring.notify.concerns import DueAfter
from app.monitoring.notify.watch import FindConcerns
from app.service.console.backend_answer import GetPermissions
from app.service.console.cookies import Preferences
from app.service.console.credentials import Credentials
from app.service.console.examinations import Examine
from app.service.console.formatting import visible
from app.service.console.gate import ConsoleGate, SignInNeeded
from app.service.console.names import CONTAINER_OF_ITEM, RECORD_OF_ITEM, RecordNames, causes_of, fields_of
from app.service.console.rendering import Assets, make_environment
from app.service.console.run_progress import error_parts
from app.service.console.run_reads import incomplete_words, unread_sources
from app.service.console.sessions import Operator
from app.service.console.settings import ConsoleSettings, Role
from app.service.console.transactions import page_reading
from app.service.console.urls import PREFIX, address
from app.service.refusals import Refusals
from app.sync.ledger.failure_lists import number_of_failures
from app.sync.ledger.items import noun_of
from app.sync.ledger.ledger import ledger_in_use
from app.sync.runs.history import kind_of
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import Run
from app.sync.runs.status import held_runs

if TYPE_CHECKING:
    from app.service.console.oidc.issuer import Issuer

COUNT_LIMIT = 1_000
"""Numbers above it are not counted exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleParts:
    """The dependencies of the console."""

    engine: Engine
    clock: Clock
    random: Random
    """Must not be predictable."""
    settings: ConsoleSettings
    admin_tokens: Sequence[SecretStr]
    failures: FailedCredentials
    refusals: Refusals
    runs: Runs
    ask_backend: GetPermissions | None
    """None: the settings contain no credentials for a backend."""
    plan_problem: Callable[[str], str | None]
    """Returns why a stored plan cannot be applied. None: it can be."""
    policy: DecisionPolicy
    provider_path: str
    find_concerns: FindConcerns
    due_after: DueAfter
    verify_due_after: DueAfter
    """Of runs that read the backend first."""
    settings_rows: Callable[[], Sequence[tuple[str, str, str]]]
    """Returns key, value and origin of every setting. Secrets are masked."""
    index_state: Callable[[], IndexState] | None
    """None: this process has no index."""
    examine: Examine | None
    """Runs the doctor. None: it cannot be run from here."""
    sources: Mapping[str, str]
    """The name of each configured source → its type in the settings."""
    keep_runs: int
    """Days for which runs are kept."""
    slots: int
    """The number of requests that this process handles at once."""
    turns: DatabaseTurns | None
    """None: requests to the database are not limited."""


@dataclass(frozen=True, slots=True)
class Link:
    """An entry of the menu."""

    name: str
    label: str
    key: str = ""
    """The key that opens it after ``g``."""
    badge: str = ""
    """A number beside the label, and the word for it."""
    badge_word: str = ""
    tone: str = ""

    @property
    def href(self) -> str:
        return address(self.name)


class Console:
    """The parts of the console, and the rendering of its pages."""

    def __init__(self, parts: ConsoleParts) -> None:
        self.parts = parts
        self.assets = Assets()
        self.gate = ConsoleGate(
            parts.settings,
            Credentials(parts.settings.tokens, parts.admin_tokens),
            engine=parts.engine,
            clock=parts.clock,
            random=parts.random,
            slots=parts.slots,
            turns=parts.turns,
            refusals=parts.refusals,
        )
        self.preferences = Preferences(parts.settings)
        self.issuer = _issuer(parts)
        self.followed: dict[tuple[object, ...], tuple[Run, dict[str, Any]]] = {}
        """A cache of live runs and what their pages show. Every operator who follows a run polls it each second."""
        self._environment = make_environment(
            {
                "noun": noun_of,
                "item_record": RECORD_OF_ITEM,
                "item_container": CONTAINER_OF_ITEM,
                "kind_of": kind_of,
                "unread_sources": unread_sources,
                "causes_of": causes_of,
                "fields_of": fields_of,
                "error_parts": error_parts,
                "asset": lambda file: f"{PREFIX}/assets/{self.assets.name(file)}",
                "page": address,
                "home": f"{PREFIX}/",
                "brand_name": visible(parts.settings.name),
            }
        )

    @property
    def operator(self) -> Operator:
        """The signed-in operator. Raises ``SignInNeeded``."""
        operator = self.gate.operator()
        if operator is None:
            raise SignInNeeded
        return operator

    def reading(self) -> AbstractContextManager[Connection]:
        """A read transaction with a statement timeout."""
        return page_reading(self.parts.engine)

    def show(self, template: str, *, current: str | None = None, status: int = 200, **context: object) -> Response:
        """A page with the menu. ``current``: its name in the menu, if it is not that of the template."""
        name = template.removesuffix(".html") if current is None else current
        frame = {} if self.gate.operator() is None else self._frame(name)
        return self.bare(template, status=status, **frame, **context)

    def bare(self, template: str, *, status: int = 200, **context: object) -> Response:
        """A page, or a part of one, without the menu."""
        return self._render(template, status, self.gate.operator(), context)

    def anonymous(self, template: str, *, status: int, **context: object) -> Response:
        """A page that does not depend on an operator, and so uses no database."""
        return self._render(template, status, None, context)

    def _render(self, template: str, status: int, operator: Operator | None, context: Mapping[str, object]) -> Response:
        html = self._environment.get_template(template).render(
            {
                "preferences": SimpleNamespace(**self.preferences.read()),
                "operator": operator,
                "token": "" if operator is None else operator.form_token,
                "here": request.full_path.rstrip("?"),
                "now": self.parts.clock(),
                "names": RecordNames(),
                "may": lambda role: operator is not None and operator.may(Role(role)),
                **context,
            }
        )
        response = make_response(html, status)
        response.headers["Content-Type"] = "text/html; charset=utf-8"
        response.headers["Vary"] = "Cookie"
        return response

    def _frame(self, current: str) -> dict[str, object]:
        with self.reading() as connection:
            held = sum(run.deletes for run in held_runs(connection, epoch_ms(self.parts.clock())))
            ledger_id = ledger_in_use(connection)
            parked, waiting = (
                0 if ledger_id is None else number_of_failures(connection, ledger_id, parked=one, limit=COUNT_LIMIT + 1)
                for one in (True, False)
            )
            sources = [state for state in source_states(connection) if state.is_configured]
            read_at = max((state.last_good_at or 0 for state in sources), default=0) or None
            revision = current_revision(connection)
        return {
            "current": current,
            "menu": _menu(held, parked, waiting),
            "unfinished": {"held": held, "retrying": waiting, "parked": parked},
            "search_text": request.args.get("q", "") if current == "search" else "",
            "incomplete": incomplete_words([state.last_verdict for state in sources]),
            "read_state": None if read_at is None else (read_at, revision),
        }


def _issuer(parts: ConsoleParts) -> "Issuer | None":
    settings = parts.settings
    if not settings.oidc.issuer:
        return None
    from app.service.console.oidc.issuer import Issuer  # noqa: PLC0415 - its libraries are optional

    # While the issuer hangs, one slot is left for operators who sign in by token.
    max_calls = max(1, parts.slots - 1)
    redirect_uri = settings.public_url + address("oidc_back")
    return Issuer(settings.oidc, redirect_uri=redirect_uri, clock=parts.clock, max_calls=max_calls)


def _menu(held: int, parked: int, waiting: int) -> tuple[tuple[str, tuple[Link, ...]], ...]:
    """Headings and their links."""
    held_badge = f"{held:,}" if held else ""
    failing = parked + waiting
    failing_badge = f"{COUNT_LIMIT:,}+" if failing > COUNT_LIMIT else str(failing or "")
    return (
        ("", (Link("overview", "Overview", "o"),)),
        (
            "Synchronization",
            (
                Link("runs", "Runs", "r"),
                Link("held", "Held deletes", "h", held_badge, "held", "warn"),
                Link("parked", "Failing items", "p", failing_badge, "failing", "bad" if parked else "warn"),
            ),
        ),
        ("Access", (Link("explain", "Explain", "e"), Link("browse", "Browse", "b"), Link("sources", "Sources", "s"))),
        (
            "System",
            (
                Link("doctor", "Doctor", "d"),
                Link("settings", "Settings", "t"),
                Link("sessions", "Sessions", "i"),
                Link("audit", "Audit log", "a"),
            ),
        ),
    )
