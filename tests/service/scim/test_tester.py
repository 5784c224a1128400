"""The endpoint passes scim2-tester, with the tolerant and with the strict policy."""

from functools import partial

import pytest
from flask import Flask
from scim2_client.engines.wsgi import WSGISCIMClient
from scim2_models import ScimPolicy
from scim2_tester import Status, check_server

from app.service.scim.protocol import TOLERANT, new_service
from tests.choice import sampled
from tests.service.scim.conftest import TOKEN


@pytest.fixture(params=sampled([TOLERANT, ScimPolicy()], sample=1), ids=["tolerant", "strict"])
def policy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.service.scim.blueprint.new_service", partial(new_service, request.param))


@pytest.mark.usefixtures("policy")
def test_scim2_tester_finds_no_error(app: Flask) -> None:
    client = WSGISCIMClient(app, "http://localhost/scim/entra/v2", headers={"Authorization": f"Bearer {TOKEN}"})
    results = check_server(client)
    assert len(results) > 50
    assert [(one.title, one.reason) for one in results if one.status not in {Status.SUCCESS, Status.SKIPPED}] == []
