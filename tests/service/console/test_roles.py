"""Tests of every page and action with every role: a lower role is refused and audited, and sees no button."""

import re
from collections.abc import Iterator, Mapping
from html import unescape
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import pytest
from pydantic import SecretStr
from sqlalchemy import insert, select

from app.foundation.audit import audit_page
from app.foundation.audit_tables import AuditRow
from app.foundation.database.engine import reading, writing
from app.service.console.settings import ConsoleToken, Role
from app.service.console.tables import ConsoleSessionRow
from app.service.console.urls import PREFIX, address
from app.sync.ledger.ledger import open_ledger
from app.sync.ledger.tables import ItemFailureRow
from app.sync.plan.tables import PlanItemRow, PlanRow
from app.sync.runs.run import Run, RunRequest, RunStatus
from tests.service.console.conftest import Browser, Office
from tests.worlds.plan_parts import note_parts

pytestmark = pytest.mark.one_database

PAGES: Mapping[str, Role] = {
    "": Role.VIEWER,
    "/": Role.VIEWER,
    "/runs": Role.VIEWER,
    "/run?id={preview}": Role.VIEWER,
    "/item?run={preview}&ordinal=1": Role.VIEWER,
    "/sync": Role.APPROVER,
    "/preview-file": Role.APPROVER,
    "/access-impact?run={preview}": Role.VIEWER,
    "/access-change?run={preview}&ordinal=1": Role.VIEWER,
    "/held": Role.VIEWER,
    "/approve?run={held}": Role.APPROVER,
    "/discard?run={held}": Role.APPROVER,
    "/parked": Role.VIEWER,
    "/explain": Role.VIEWER,
    "/browse": Role.VIEWER,
    "/organization?id=acme": Role.VIEWER,
    "/folder?organization=acme&id=top": Role.VIEWER,
    "/document?organization=acme&id=handbook": Role.VIEWER,
    "/user?id=ada": Role.VIEWER,
    "/group?organization=acme&id=staff": Role.VIEWER,
    "/told?kind=document&organization=acme&item=handbook": Role.VIEWER,
    "/access?type=document&organization=acme&resource=handbook": Role.VIEWER,
    "/search?q=ada": Role.VIEWER,
    "/suggest?q=ada": Role.VIEWER,
    "/sources": Role.VIEWER,
    "/problems?source=people&sort=dangling": Role.VIEWER,
    "/doctor": Role.VIEWER,
    "/settings": Role.VIEWER,
    "/sessions": Role.VIEWER,
    "/audit": Role.VIEWER,
    "/access.csv?user=ada&organization=acme": Role.VIEWER,
    "/audit.jsonl": Role.VIEWER,
    "/keys": Role.VIEWER,
}
"""Every page, as an address below the prefix, and who may see it."""

ACTIONS: Mapping[str, tuple[Role, Mapping[str, str]]] = {
    "approve": (Role.APPROVER, {"run": "{held}", "reason": "so"}),
    "discard": (Role.APPROVER, {"run": "{held}", "reason": "so"}),
    "sync": (Role.APPROVER, {"reason": "so"}),
    "sync beyond the limits": (Role.ADMIN, {"reason": "so", "deletes": "1"}),
    "preview-file": (Role.APPROVER, {"reason": "so"}),
    "apply": (Role.APPROVER, {"run": "{preview}"}),
    "apply beyond the limits": (Role.ADMIN, {"run": "{unlimited}"}),
    "cancel": (Role.APPROVER, {"run": "{queued}"}),
    "retry": (Role.APPROVER, {}),
    "doctor": (Role.ADMIN, {}),
    "end-session": (Role.VIEWER, {"session": "{own}"}),
    "end-session of somebody else": (Role.ADMIN, {"session": "{other}"}),
    "end-session of all": (Role.ADMIN, {"session": "all"}),
    "look": (Role.VIEWER, {"theme": "dark"}),
    "sign-out": (Role.VIEWER, {}),
}
"""Address of an action (the first word of the key) → the required role and the form."""

OPEN = {"/sign-in", "/oidc", "/oidc/back"}
"""Ways in, for who has no role yet."""


SOMEBODY = ConsoleToken(name="somebody", role=Role.ADMIN, token=SecretStr("another long token of the settings"))


class Standing:
    """A console with something of everything that can be decided."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.ids = {
            "preview": self._preview("p-1", allow_deletes=False).run_id,
            "unlimited": self._preview("p-2", allow_deletes=True).run_id,
            "held": office.held_run(34).run_id,
        }
        self.ids["queued"] = office.runs.enqueue(RunRequest(trigger="resync", user_ids=("ada",)))[0].run_id
        ledger = open_ledger(office.engine, "http://backend.test", "key", office.time)
        with writing(office.engine) as connection:
            row = {"ledger_id": ledger.ledger_id, "kind": "document", "organization_id": "acme", "container_id": ""}
            row |= {"fingerprint": "", "failures": 10, "retry_at": 0, "message": "no", "deleting": False}
            connection.execute(insert(ItemFailureRow.__table__), [row | {"item_id": "d", "parked": True}])
        # Of another token than anybody's who tries.
        somebody = office.with_console(tokens=(*office.settings.console.tokens, SOMEBODY))
        before = self._sessions()
        somebody.browser().sign_in(SOMEBODY.token.get_secret_value())
        [self.ids["other"]] = self._sessions() - before

    def _preview(self, plan_id: str, *, allow_deletes: bool) -> Run:
        office = self.office
        run, _ = office.runs.enqueue(
            RunRequest(trigger="console", dry_run=True, allow_deletes=allow_deletes, asked_by=plan_id)
        )
        with writing(office.engine) as connection:
            plan = {"plan_id": plan_id, "ledger_id": 1, "revision": 1, "ledger_revision": 1, "plan_hash": "h"}
            connection.execute(insert(PlanRow.__table__).values(**plan, created_at=0))
            connection.execute(
                insert(PlanItemRow.__table__).values(
                    plan_id=plan_id, ordinal=1, phase=1, action="delete", kind="document", organization_id="acme",
                    container_id="", item_id="handbook", operation="delete_documents", scope="[]",
                    reason="the record is gone", status="planned",
                )
            )  # fmt: skip
            note_parts(connection, plan_id)
        office.time.move_on(seconds=1)
        office.runs.move(run.run_id, RunStatus.QUEUED, RunStatus.READING, started_at=office.time())
        office.runs.move(run.run_id, RunStatus.READING, RunStatus.PLANNING, revision=1)
        return office.runs.move(
            run.run_id,
            RunStatus.PLANNING,
            RunStatus.DONE,
            plan_id=plan_id,
            ledger_id=1,
            finished_at=office.time(),
            counts={"document": {"delete": {"planned": 1}}},
        )

    def _sessions(self) -> set[str]:
        with reading(self.office.engine) as connection:
            return set(connection.execute(select(ConsoleSessionRow.__table__.c.session_digest)).scalars())

    def browser(self, role: Role) -> Browser:
        """Somebody else of this role, whose session is the last one."""
        before = self._sessions()
        browser = self.office.browser(role)
        [self.ids["own"]] = self._sessions() - before
        return browser

    def filled(self, text: str) -> str:
        for name, value in self.ids.items():
            text = text.replace("{" + name + "}", value)
        return text

    def state(self) -> object:
        """What actions change."""
        runs = [(run.run_id, run.status, run.cancel_requested) for run in self.office.runs.recent()]
        return runs, self._sessions()

    def refusals(self) -> list[AuditRow]:
        with reading(self.office.engine) as connection:
            return audit_page(connection, action="refused")


@pytest.fixture
def standing(office: Office) -> Standing:
    return Standing(office)


def test_every_page_and_action_is_in_the_tables(office: Office) -> None:
    rules = [rule for rule in office.browser().client.application.url_map.iter_rules() if str(rule).startswith(PREFIX)]
    rules = [rule for rule in rules if "<" not in str(rule)]
    pages = {str(rule).removeprefix(PREFIX) for rule in rules if "GET" in (rule.methods or ())}
    actions = {str(rule).removeprefix(f"{PREFIX}/") for rule in rules if "POST" in (rule.methods or ())}
    assert pages - OPEN == {page.partition("?")[0] for page in PAGES}
    assert actions - {"sign-in"} == {name.partition(" ")[0] for name in ACTIONS}


@pytest.mark.parametrize("role", list(Role))
def test_each_page_is_for_its_role_and_those_above(standing: Standing, role: Role) -> None:
    browser = standing.browser(role)
    for page, needs in PAGES.items():
        before = len(standing.refusals())
        browser.get(PREFIX + standing.filled(page))
        if role.may(needs):
            assert browser.status in {200, 404}, page
            assert len(standing.refusals()) == before, page
        else:
            assert browser.status == 403, page
            entry, *others = standing.refusals()
            assert len(others) == before
            assert (entry.actor, entry.role, entry.outcome) == (f"the {role}", role, f"needs the role {needs}")
            assert entry.subject == PREFIX + page.partition("?")[0]


@pytest.mark.extended
@pytest.mark.parametrize("role", list(Role))
def test_each_action_is_for_its_role_and_those_above(standing: Standing, role: Role) -> None:
    refused = 0
    for action, (needs, form) in ACTIONS.items():
        browser = standing.browser(role)
        before = standing.state()
        _send(browser, standing, action, form)
        if role.may(needs):
            # A missing backend or doctor, or a changed state, answers with 409 or a redirect.
            assert browser.status in {303, 404, 409}, action
        else:
            assert browser.status == 403, action
            assert standing.state() == before, action
            entry = standing.refusals()[0]
            assert (entry.actor, entry.role) == (f"the {role}", role)
            named = re.search(r"the role (\w+)", entry.outcome)
            assert named is not None, action
            assert not role.may(Role(named[1])), action
            refused += 1
        assert len(standing.refusals()) == refused, action


@pytest.mark.extended
@pytest.mark.parametrize("role", list(Role))
def test_pages_show_no_forbidden_actions(standing: Standing, role: Role) -> None:
    browser = standing.browser(role)
    standing.office.browser(Role.VIEWER if role is Role.ADMIN else role)  # a session that may be ended
    seen = set()
    for page, needs in PAGES.items():
        if not role.may(needs) or page.endswith(".jsonl"):
            continue
        for ids in (standing.ids, {**standing.ids, "preview": standing.ids["unlimited"]}, _queued(standing.ids)):
            shown = page
            for name, value in ids.items():
                shown = shown.replace("{" + name + "}", value)
            html = browser.get(PREFIX + shown)
            for action, form in _forms(html):
                wanted = _role_of(standing, action, form)
                assert role.may(wanted), (page, action, form)
                seen.add(action)
            for href in re.findall(r'href="([^"]*)"', html):
                path = urlsplit(unescape(href)).path.removeprefix(PREFIX)
                linked = [PAGES[one] for one in PAGES if one.partition("?")[0] == path]
                assert all(role.may(one) for one in linked), (page, href)
    offered = {Role.VIEWER: {"look", "sign-out", "end-session"}}
    of_approvers = {"approve", "discard", "sync", "preview-file", "apply", "cancel", "retry"}
    offered[Role.APPROVER] = offered[Role.VIEWER] | of_approvers
    offered[Role.ADMIN] = offered[Role.APPROVER]
    # There is no doctor here that could be run; who may do more than an approver does it by the same forms.
    assert seen - {"doctor"} == offered[role]


def _queued(ids: Mapping[str, str]) -> dict[str, str]:
    return {**ids, "preview": ids["queued"]}


def _forms(html: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The forms that change something: their action, and their fields as they are."""
    for action, inner in re.findall(r'<form[^>]*method="post"[^>]*action="([^"]*)"[^>]*>(.*?)</form>', html, re.DOTALL):
        fields = dict(re.findall(r'<input[^>]*name="([^"]*)"[^>]*value="([^"]*)"', inner))
        yield unescape(action).removeprefix(f"{PREFIX}/").partition("?")[0], fields


def _role_of(standing: Standing, action: str, form: Mapping[str, str]) -> Role:
    """What sending this form needs."""
    needs = ACTIONS[action][0]
    if (action == "apply" and form["run"] == standing.ids["unlimited"]) or (action == "sync" and "deletes" in form):
        needs = Role.ADMIN
    if action == "end-session" and form["session"] in {"all", standing.ids["other"]}:
        needs = Role.ADMIN
    return needs


def _send(browser: Browser, standing: Standing, action: str, form: Mapping[str, str]) -> None:
    token = re.search(r'name="formToken" value="([^"]*)"', browser.get(address("keys")))
    assert token is not None
    sent: dict[str, Any] = {"formToken": token[1], **{name: standing.filled(value) for name, value in form.items()}}
    if action == "preview-file":
        sent["file"] = (BytesIO(b"users: []\n"), "directory.yaml")
    browser.post(f"{PREFIX}/{action.partition(' ')[0]}", sent, follow=False)
