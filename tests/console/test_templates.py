"""Every template in every state of its subject: a name or attribute that is missing is an error there."""

import pytest

from app.console.console import address
from app.console.settings import Role
from tests.console.conftest import Office
from tests.console.states import STATES


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
@pytest.mark.parametrize("state", STATES)
def test_a_run_is_shown_in_every_state(office: Office, state: str, role: Role) -> None:
    run = STATES[state](office)
    browser = office.browser(role)
    shown = address("run", id=run.run_id)
    for path in (shown, address("runs"), address("overview"), address("held")):
        assert "</html>" in browser.get(path)
        assert browser.status == 200, path
    for path in (shown, address("run", id=run.run_id, kind="document"), address("run", id=run.run_id, after=6)):
        assert 'data-part="stages"' in browser.get(path, **{"x-fragment": "1"})
        assert browser.status == 200, path
