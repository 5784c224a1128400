"""What all pages of the console have in common: the parts they read from, the menu, and how one is shown."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlencode

from flask import Response, make_response, redirect, request
from pydantic import SecretStr
from sqlalchemy import Connection, Engine
from werkzeug.exceptions import BadRequest

from app.access.contents import oldest_good_read, source_states
from app.access.decision.decide import DecisionPolicy
from app.access.revisions import current_revision
from app.foundation.clock import Clock, epoch_ms, from_epoch_ms
from app.foundation.text import named
from app.http.throttle import FailedCredentials
from app.service.console.backend_answer import AskBackend
from app.service.console.examinations import Examine
from app.service.console.formatting import visible
from app.service.console.gate import ConsoleGate, SignInNeeded
from app.service.console.rendering import Assets, make_environment
from app.service.console.sessions import Credentials, Operator
from app.service.console.settings import ConsoleSettings, Role
from app.service.console.transactions import page_reading
from app.service.refusals import Refusals
from app.sync.ledger.failures import count_parked
from app.sync.ledger.ledger import ledger_in_use
from app.sync.plan.limits import noun_of
from app.sync.runs.lifecycle import Runs
from app.sync.runs.run import Run
from app.sync.runs.status import held_runs

if TYPE_CHECKING:
    from app.service.console.oidc.issuer import Issuer

PREFIX = "/console"
PAGE_ROWS = 50
"""Rows of a list on one page."""

MOST_COUNTED = 1_000
"""What there is more of is counted no further."""

_LOOKS: Mapping[str, tuple[str, ...]] = {
    "theme": ("system", "light", "dark"),
    "times": ("own", "utc"),
    "keys": ("on", "off"),
}
_LOOK_COOKIE = "usher-look"
_LOOK_SECONDS = 365 * 86_400


class ConcernLike(Protocol):
    """What needs somebody's attention; ``app.monitoring.notify.concerns`` finds it."""

    @property
    def cause(self) -> str: ...
    @property
    def says(self) -> str: ...
    @property
    def advice(self) -> str: ...
    @property
    def since(self) -> datetime: ...
    @property
    def run_id(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleParts:
    """What the console is put together from."""

    engine: Engine
    clock: Clock
    random: Random
    """Must not be foreseeable."""
    settings: ConsoleSettings
    admin_tokens: Sequence[SecretStr]
    failures: FailedCredentials
    refusals: Refusals
    runs: Runs
    ask_backend: AskBackend | None
    """None: the settings name no backend that could be asked."""
    plan_problem: Callable[[str], str | None]
    """Why a stored plan cannot be applied; None: it may be."""
    policy: DecisionPolicy
    provider_path: str
    concerns: Callable[[Connection, datetime], Sequence[ConcernLike]]
    due_after: Callable[[datetime], datetime | None]
    settings_rows: Callable[[], Sequence[tuple[str, str, str]]]
    """Key and value of every setting, secrets masked, and where it was given."""
    examine: Examine | None
    """Looks at everything, as the doctor does; None: nobody can, from here."""
    keep_runs: int
    """Days for which runs are kept."""
    slots: int
    """How many pages may be made at once in this process."""


@dataclass(frozen=True, slots=True)
class Look:
    """How somebody wants pages to look; in a cookie, so that nothing flashes."""

    theme: str = "system"
    times: str = "own"
    keys: str = "on"


@dataclass(frozen=True, slots=True)
class Link:
    """One line of the menu."""

    name: str
    says: str
    href: str
    key: str = ""
    count: int = 0
    tone: str = ""
    count_says: str = ""
    is_more: bool = False
    """Whether there are more than were counted."""


class Console:
    """The parts, and how a page is shown."""

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
            refusals=parts.refusals,
        )
        self.issuer = _issuer(parts)
        self.followed: dict[tuple[object, ...], tuple[Run, dict[str, Any]]] = {}
        """What pages of live runs show, until the run changes: everyone who follows a run shares it."""
        self._environment = make_environment(
            {
                "noun": noun_of,
                "asset": lambda file: f"{PREFIX}/assets/{self.assets.name(file)}",
                "page": address,
                "home": f"{PREFIX}/",
                "brand_name": visible(parts.settings.name),
            },
        )

    @property
    def operator(self) -> Operator:
        """The operator who is signed in. Raises ``SignInNeeded``."""
        operator = self.gate.operator()
        if operator is None:
            raise SignInNeeded
        return operator

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction for a page."""
        with page_reading(self.parts.engine) as connection:
            yield connection

    def show(self, template: str, *, current: str, status: int = 200, **context: object) -> Response:
        """A page in its frame; ``current``: its name in the menu."""
        operator = self.gate.operator()
        frame: dict[str, object] = {}
        if operator is not None:
            frame = self._frame(current)
        return self.bare(template, status=status, **frame, **context)

    def bare(self, template: str, *, status: int = 200, **context: object) -> Response:
        """A page, or part of one, without its frame."""
        return self._page(template, status, self.gate.operator(), context)

    def alone(self, template: str, *, status: int, **context: object) -> Response:
        """A page for nobody in particular, which asks no database."""
        return self._page(template, status, None, context)

    def _page(self, template: str, status: int, operator: Operator | None, context: Mapping[str, object]) -> Response:
        text = self._environment.get_template(template).render(
            {
                "look": look_of_request(),
                "operator": operator,
                "token": "" if operator is None else operator.form_token,
                "here": request.full_path.rstrip("?"),
                "now": self.parts.clock(),
                "may": _may(operator),
                **context,
            }
        )
        return self.as_it_was(text, status)

    def as_it_was(self, text: str, status: int = 200) -> Response:
        """What was made before, or just now."""
        response = make_response(text, status)
        response.headers["Content-Type"] = "text/html; charset=utf-8"
        response.headers["Vary"] = "Cookie"
        return response

    def _frame(self, current: str) -> dict[str, object]:
        with self.reading() as connection:
            now = self.parts.clock()
            held = sum(run.deletes for run in held_runs(connection, epoch_ms(now)))
            ledger_id = ledger_in_use(connection)
            parked = 0 if ledger_id is None else count_parked(connection, ledger_id, limit=MOST_COUNTED + 1)
            sources = [state for state in source_states(connection) if state.is_configured]
            read_at = oldest_good_read(sources)
            revision = current_revision(connection)
        return {
            "current": current,
            "menu": _menu(held, parked),
            "search": {
                "href": address("search"),
                "says": "Search users, documents, folders, groups",
                "text": request.args.get("q", "") if current == "search" else "",
            },
            "failing_sources": sum(state.last_verdict == "failed" or bool(state.refused) for state in sources),
            "read_state": None if read_at is None else (from_epoch_ms(read_at), revision),
        }


def _issuer(parts: ConsoleParts) -> "Issuer | None":
    settings = parts.settings
    if not settings.oidc.issuer:
        return None
    from app.service.console.oidc.issuer import Issuer  # noqa: PLC0415 - its libraries are there where one is configured

    # While the issuer hangs, one slot is left for users who sign in by token.
    at_once = max(1, parts.slots - 1)
    redirect_uri = settings.public_url + address("oidc_back")
    return Issuer(settings.oidc, redirect_uri=redirect_uri, clock=parts.clock, at_once=at_once)


def _menu(held: int, parked: int) -> tuple[tuple[str, tuple[Link, ...]], ...]:
    return (
        ("", (Link("overview", "Overview", address("overview"), "o"),)),
        (
            "Synchronization",
            (
                Link("runs", "Runs", address("runs"), "r"),
                Link("held", "Held deletes", address("held"), "h", held, "warn", "held"),
                Link(
                    "parked",
                    "Parked items",
                    address("parked"),
                    "p",
                    min(parked, MOST_COUNTED),
                    "bad",
                    "parked",
                    parked > MOST_COUNTED,
                ),
            ),
        ),
        (
            "Access",
            (
                Link("explain", "Explain", address("explain"), "e"),
                Link("browse", "Browse", address("browse"), "b"),
                Link("sources", "Sources", address("sources"), "s"),
            ),
        ),
        (
            "System",
            (
                Link("doctor", "Doctor", address("doctor"), "d"),
                Link("settings", "Settings", address("settings")),
                Link("sessions", "Sessions", address("sessions")),
                Link("audit", "Audit log", address("audit"), "a"),
            ),
        ),
    )


def _may(operator: Operator | None) -> Callable[[str], bool]:
    return lambda role: operator is not None and operator.may(Role(role))


_PATHS = {
    "overview": "/",
    "sign_in": "/sign-in",
    "sign_out": "/sign-out",
    "audit_lines": "/audit.jsonl",
    "oidc_back": "/oidc/back",
    "ledger_item": "/told",
}


def address(name: str, **query: object) -> str:
    """Where a page is. Ids travel in the query: a path takes neither slashes nor dots."""
    given = {key: value for key, value in query.items() if value not in {None, ""}}
    path = PREFIX + _PATHS.get(name, f"/{name.replace('_', '-')}")
    return f"{path}?{urlencode(given, quote_via=quote, errors='surrogatepass')}" if given else path


def route_of(name: str) -> str:
    """The route of a page, below the blueprint's prefix."""
    return _PATHS.get(name, f"/{name.replace('_', '-')}")


def look_of_request() -> Look:
    """How the reader wants pages to look."""
    given = request.cookies.get(_LOOK_COOKIE, "").split(".")
    if len(given) != len(_LOOKS):
        return Look()
    fits = zip(given, _LOOKS.values(), strict=True)
    return Look(*given) if all(value in known for value, known in fits) else Look()


def set_look(response: Response, name: str, value: str, *, secure: bool) -> None:
    """Remembers one choice; another one than those there are changes nothing."""
    look = look_of_request()
    chosen = {key: getattr(look, key) for key in _LOOKS}
    if value in _LOOKS.get(name, ()):
        chosen[name] = value
    response.set_cookie(
        _LOOK_COOKIE, ".".join(chosen.values()), max_age=_LOOK_SECONDS, secure=secure, httponly=True, samesite="Lax"
    )


def query(*known: str) -> dict[str, str]:
    """The parameters of the address, empty where they are not given. Raises ``BadRequest`` for any other, and for one
    that comes twice."""
    for name in request.args:
        if name not in known:
            shown = ", ".join(known) or "none"
            raise BadRequest(f"{named(name, limit=80)} is not a parameter of this page; it knows {shown}")
        if len(request.args.getlist(name)) > 1:
            raise BadRequest(f"{name} is given more than once")
    return {name: request.args.get(name, "") for name in known}


def one_of(value: str, known: Sequence[str], what: str) -> str:
    """The value. Raises ``BadRequest`` unless it is empty or known."""
    if value and value not in known:
        raise BadRequest(f"{what} {named(value, limit=80)} is not known; use one of {', '.join(known)}")
    return value


def go_to(where: str) -> Response:
    """On to another page, by GET."""
    response = make_response(redirect(where, 303))
    response.headers["Cache-Control"] = "no-store"
    return response


def safe_back(where: str) -> str:
    """The page to go back to, on this console only; another address becomes the overview."""
    fits = where.startswith((f"{PREFIX}/", f"{PREFIX}?")) and "\\" not in where and where.isprintable()
    return where if fits and not where.startswith(address("sign_in")) else address("overview")
