"""HTTP APIs as sources: presets, paging, members, authentication, and servers that misbehave."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.access.export import export_records
from app.access.records import Membership, User
from app.commands.schema import METADATA
from app.directory.bounded import BoundedSource
from app.directory.configured import source_from_settings
from app.directory.connectors.http.connector import HttpConnector
from app.directory.mapping.rules import Rules
from app.directory.mapping.source import MappedSource
from app.directory.mapping.spool_file import SpoolFile
from app.directory.settings import DirectorySettings, HttpSourceSettings
from app.directory.source import Answered, End, Found, Gone, Malformed, ObjectId, ReadRequest, Step, Verdict
from app.directory.testing.world import read
from app.foundation.clock import utc_now
from app.foundation.database.engine import open_engine, reading
from app.sync.runs.directory_reads import read_directory
from tests.directory.identity_provider import (
    CLIENT,
    KEY,
    SECRET,
    TOKEN,
    Call,
    Fault,
    Group,
    IdentityProvider,
    answer,
    at,
    cut_off,
    drip,
    endless,
    hang,
    identity_provider,
    status,
)

pytestmark = [pytest.mark.process]

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)

USERS = {
    "keycloak": {"name": "it.firstName", "email": "it.email", "disabled": "!it.enabled"},
    "okta": {"name": "it.profile.displayName", "email": "it.profile.email", "disabled": 'it.status != "ACTIVE"'},
    "google_workspace": {"name": "it.name.fullName", "email": "it.primaryEmail", "disabled": "it.suspended"},
    "microsoft_graph": {"name": "it.displayName", "email": "it.mail", "disabled": "!it.accountEnabled"},
    "scim": {"name": "it.displayName", "email": "it.emails[0].value", "disabled": "!it.active"},
}
NAMES = {
    "keycloak": "it.name",
    "okta": "it.profile.name",
    "google_workspace": "it.name",
    "scim": "it.displayName",
    "microsoft_graph": "it.displayName",
}

USER = {"displayName": "U0", "email": "u0@x.example"}
GROUPS = {"from": "groups", "organization": {"organizationId": "it.id", "organizationName": "it.name"}}

NewProvider = Callable[[str], IdentityProvider]


@pytest.fixture
def new_provider() -> Iterator[NewProvider]:
    with ExitStack() as stack:

        def provider(api: str) -> IdentityProvider:
            made = stack.enter_context(identity_provider(api))
            for number in range(5):
                made.add_user(f"u{number}", f"U{number}", f"u{number}@x.example", enabled=number != 4)
            made.groups = {"g1": Group("eng", ["u0", "u1", "u2"]), "g2": Group("ops"), "g3": Group("all", ["u3", "u4"])}
            return made

        yield provider


def rules_of(api: str) -> list[dict[str, Any]]:
    return [
        {"from": "users", "user": {"userId": "it.id", **USERS[api]}},
        {
            "from": "groups",
            "each": "members",
            "membership": {"organizationId": NAMES[api], "userId": "member.userId"},
        },
    ]


class Api:
    """A source of a provider, and the pauses that it made."""

    def __init__(self, provider: IdentityProvider, **settings: object) -> None:
        self.waits: list[float] = []
        self.settings = HttpSourceSettings.model_validate(
            {
                "type": "http",
                "name": "idp",
                "preset": provider.api,
                "base_url": provider.base_url,
                "connect_timeout": 1,
                "answer_timeout": 1,
                "map": rules_of(provider.api),
                **settings,
            }
        )

    def read(self, request: ReadRequest | None = None, spool: Path | None = None) -> list[Step]:
        connector = HttpConnector(self.settings, clock=lambda: NOW, wait=self.waits.append)
        rules = Rules(self.settings.map, self.settings.preset_in_force().always)
        steps = read(MappedSource("idp", connector, rules, SpoolFile.of(spool, "idp")), request or ReadRequest())
        end = steps[-1]
        assert isinstance(end, End)
        assert SECRET not in end.reason
        assert "hunter2" not in end.reason
        assert len(end.reason) < 500
        return steps

    def end(self) -> End:
        end = self.read()[-1]
        assert isinstance(end, End)
        return end


def members(steps: list[Step]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for step in steps:
        if isinstance(step, Found) and isinstance(step.record, Membership):
            found.setdefault(step.record.organization_id, []).append(step.record.user_id or "")
    return found


def user_ids(steps: list[Step]) -> list[str]:
    return [step.record.user_id for step in steps if isinstance(step, Found) and isinstance(step.record, User)]


def end_of(steps: list[Step]) -> End:
    end = steps[-1]
    assert isinstance(end, End)
    return end


# Presets.


@pytest.mark.parametrize("api", USERS)
@pytest.mark.parametrize("size", [2, 5, 100])
def test_presets_read_users_and_members_page_by_page(new_provider: NewProvider, api: str, size: int) -> None:
    provider = new_provider(api)
    provider.page = size
    steps = Api(provider).read()
    assert end_of(steps).verdict is Verdict.COMPLETE
    users = [step.record for step in steps if isinstance(step, Found) and isinstance(step.record, User)]
    assert users == [
        User(user_id=f"u{number}", name=f"U{number}", email=f"u{number}@x.example", disabled=number == 4)
        for number in range(5)
    ]
    assert members(steps) == {"eng": ["u0", "u1", "u2"], "all": ["u3", "u4"]}
    origins = {step.origin for step in steps if isinstance(step, Found)}
    assert {(ObjectId("users", "u0"), "1"), (ObjectId("groups", "g3"), "2")} <= origins


def test_keycloak_is_asked_for_more_than_its_page_of_100(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    provider.page = 10_000
    for number in range(250):
        provider.add_user(f"v{number}", "V", f"v{number}@x.example")
    provider.groups["g1"] = Group("eng", [f"v{number}" for number in range(250)])
    steps = Api(provider).read()
    assert len(members(steps)["eng"]) == 250
    assert ("groups/g1/members", {"max": "500", "briefRepresentation": "true", "first": "0"}) in provider.calls


def test_subgroups_of_keycloak_are_groups_of_their_own(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    provider.page = 1
    provider.groups |= {
        "g4": Group("eng/a", ["u0"], "g1"),
        "g5": Group("eng/b", ["u1"], "g1"),
        "g6": Group("eng/b/c", ["u4"], "g5"),
    }
    steps = Api(provider).read()
    assert steps[-1] == End(Verdict.COMPLETE)
    assert members(steps) == {
        "eng": ["u0", "u1", "u2"], "all": ["u3", "u4"], "eng/a": ["u0"], "eng/b": ["u1"], "eng/b/c": ["u4"]
    }  # fmt: skip
    assert "groups/g4/children" not in [path for path, _ in provider.calls]


def test_groups_may_be_members_of_groups(new_provider: NewProvider) -> None:
    provider = new_provider("google_workspace")
    provider.groups["g2"] = Group("ops", ["g1", "u4", "C0customer"])
    steps = Api(provider).read()
    assert members(steps)["ops"] == ["u0", "u1", "u2", "u4"]


@pytest.mark.parametrize(
    "member",
    [
        {"value": "u3"},
        {"value": "u3@x.example"},
        {"value": "no", "$ref": "https://idp.example/scim/v2/Users/u3"},
        {"$ref": "../Users/u3"},
        {"value": "u3", "$ref": "https://idp.example/scim/v2/Users/u3@x.example/"},
        {"value": "u3", "$ref": "", "display": "U 3", "type": "User"},
    ],
)
def test_members_of_scim_groups_are_matched_by_id_reference_or_user_name(
    new_provider: NewProvider, member: dict[str, str]
) -> None:
    provider = new_provider("scim")
    group = {"id": "g9", "displayName": "eng", "members": [member]}
    provider.fault = at("Groups", 0, answer({"totalResults": 1, "Resources": [group]}))
    steps = Api(provider).read()
    assert steps[-1] == End(Verdict.COMPLETE)
    assert members(steps) == {"eng": ["u3"]}


def test_a_user_name_equal_to_the_id_of_another_user_grants_no_access(new_provider: NewProvider) -> None:
    provider = new_provider("scim")
    provider.users["u4"]["userName"] = "u0"
    assert members(Api(provider).read())["eng"] == ["u1", "u2"]


def test_an_api_without_a_preset_is_described_in_the_settings(new_provider: NewProvider) -> None:
    provider = new_provider("scim")
    pages = {
        "": {"data": {"list": [{"uid": 1, "mail": "a@x"}]}, "next": "people?after=1"},
        "1": {"data": {"list": [{"uid": 2, "mail": "b@x"}]}, "next": None},
    }
    provider.fault = lambda call: call.answer(pages[call.parameters.get("after", "")])
    steps = Api(
        provider,
        preset=None,
        sets={"people": {"path": "people", "id": "uid"}},
        paging={"style": "link", "next": "next"},
        items="data.list",
        map=[{"from": "people", "user": {"userId": "string(it.uid)", "name": "it.mail", "email": "it.mail"}}],
    ).read()
    assert user_ids(steps) == ["1", "2"]
    assert steps[-1] == End(Verdict.COMPLETE)


def test_a_set_of_the_settings_changes_that_of_the_preset(new_provider: NewProvider) -> None:
    provider = new_provider("okta")
    sets = {"users": {"query": {"search": 'status eq "ACTIVE"'}}, "groups": {"path": "teams"}}
    provider.fault = at("teams", 0, answer([]))
    assert Api(provider, sets=sets).end() == End(Verdict.COMPLETE)
    assert provider.calls == [("users", {"limit": "200", "search": 'status eq "ACTIVE"'}), ("teams", {"limit": "200"})]


def test_sets_and_members_that_no_rule_uses_are_not_requested(new_provider: NewProvider) -> None:
    provider = new_provider("okta")
    rules = [{"from": "groups", "organization": {"organizationId": "it.id", "organizationName": "it.id"}}]
    assert Api(provider, map=rules).end() == End(Verdict.COMPLETE)
    assert [path for path, _ in provider.calls] == ["groups"]


def test_requests_for_members_are_limited_and_share_connections(new_provider: NewProvider) -> None:
    provider = new_provider("okta")
    provider.groups = {f"g{number}": Group(f"n{number}", ["u0"]) for number in range(40)}

    def slow(call: Call) -> bool:
        if call.path.endswith("/users"):
            time.sleep(0.02)
        return False

    provider.fault = slow
    steps = Api(provider, max_in_flight=3).read()
    assert steps[-1] == End(Verdict.COMPLETE)
    assert len(members(steps)) == 40
    assert 2 <= provider.most_running <= 3
    assert provider.connections <= 4


def test_an_incremental_read_is_refused(new_provider: NewProvider) -> None:
    [end] = Api(new_provider("okta"), map=rules_of("okta")[:1]).read(ReadRequest(since="x"))
    assert isinstance(end, End)
    assert (end.verdict, end.answered) == (Verdict.FAILED, Answered.CURSOR_REFUSED)


# Changes (Microsoft Graph).


def changes(api: Api, cursor: str, spool: Path) -> tuple[list[Step], End]:
    steps = api.read(ReadRequest(since=cursor), spool)
    return steps[:-1], end_of(steps)


@pytest.fixture
def graph(new_provider: NewProvider, tmp_path: Path) -> tuple[IdentityProvider, Api, str]:
    """A provider, its source, and the cursor of a complete read."""
    provider = new_provider("microsoft_graph")
    api = Api(provider)
    end = end_of(api.read(None, tmp_path))
    assert (end.verdict, end.answered) == (Verdict.COMPLETE, None)
    return provider, api, end.cursor


def test_the_used_attributes_are_requested(new_provider: NewProvider) -> None:
    provider = new_provider("microsoft_graph")
    Api(provider).read()
    calls = dict(provider.calls)
    assert calls["users"] == {"$top": "999", "$select": "accountEnabled,displayName,id,mail"}
    assert calls["groups/g1/members"] == {"$top": "999", "$select": "id"}
    assert calls["groups/delta"] == {"$deltatoken": "latest", "$select": "displayName,id,members"}


def test_changed_objects_are_read_as_they_are_now(graph: tuple[IdentityProvider, Api, str], tmp_path: Path) -> None:
    provider, api, cursor = graph
    provider.page = 2
    provider.add_user("u0", "Renamed", "u0@x.example")
    del provider.users["u2"], provider.groups["g3"]
    provider.groups["g2"] = Group("ops", ["u1"])
    provider.log += [
        ("users", {"id": "u0", "displayName": "not this"}),
        ("groups", {"id": "g2", "members@delta": [{"id": "u1"}, {"id": "u3", "@removed": {"reason": "deleted"}}]}),
        ("users", {"id": "u2", "@removed": {"reason": "changed"}}),
        ("groups", {"id": "g3", "@removed": {"reason": "deleted"}}),
        ("users", {"id": "u1", "@removed": {"reason": "changed"}}),
        ("users", {"id": "u1"}),  # restored
    ]
    provider.calls.clear()
    steps, end = changes(api, cursor, tmp_path)
    assert (end.verdict, end.answered) == (Verdict.COMPLETE, Answered.CHANGES)
    assert {
        step.record.user_id: step.record.name
        for step in steps
        if isinstance(step, Found) and isinstance(step.record, User)
    } == {"u0": "Renamed", "u1": "U1"}
    assert {step.object for step in steps if isinstance(step, Gone)} == {
        ObjectId("users", "u2"),
        ObjectId("groups", "g3"),
    }
    # The group of the deleted user is reported, too.
    assert members(steps) == {"ops": ["u1"], "eng": ["u0", "u1"]}
    assert "users" not in dict(provider.calls)
    again, end = changes(api, end.cursor, tmp_path)
    assert (again, end.verdict) == ([], Verdict.COMPLETE)


def test_a_changed_object_that_is_not_found_is_not_removed(
    graph: tuple[IdentityProvider, Api, str], tmp_path: Path
) -> None:
    provider, api, cursor = graph
    provider.log.append(("users", {"id": "u0"}))
    provider.fault = at("users/u0", 0, status(404), times=1)
    steps, end = changes(api, cursor, tmp_path)
    assert [step for step in steps if isinstance(step, Gone)] == []
    assert (end.verdict, end.answered, end.cursor) == (Verdict.PARTIAL, Answered.CHANGES, cursor)
    assert end.reason.startswith("/v1.0/users/u0: the server answers with 404")
    steps, end = changes(api, cursor, tmp_path)
    assert (user_ids(steps), end.verdict) == (["u0"], Verdict.COMPLETE)


@pytest.mark.parametrize(
    "users",
    [
        {"query": {"$filter": "accountEnabled eq true"}},
        {"query": {"$search": '"displayName:a"', "ConsistencyLevel": "eventual"}},
        {"path": "groups/g1/members"},
    ],
)
def test_a_part_of_a_list_has_no_incremental_reads(
    new_provider: NewProvider, tmp_path: Path, users: dict[str, object]
) -> None:
    provider = new_provider("microsoft_graph")
    end = end_of(Api(provider, map=rules_of("microsoft_graph")[:1], sets={"users": users}).read(None, tmp_path))
    assert end.cursor == ""
    assert "users/delta" not in dict(provider.calls)


def test_a_page_size_or_own_changes_keep_incremental_reads(new_provider: NewProvider, tmp_path: Path) -> None:
    rules = rules_of("microsoft_graph")[:1]
    delta = {"path": "users/delta", "query": {"$deltatoken": "latest"}}
    for users in ({"query": {"$top": "50"}}, {"query": {"$orderby": "id"}, "delta": delta}):
        end = end_of(Api(new_provider("microsoft_graph"), map=rules, sets={"users": users}).read(None, tmp_path))
        assert (end.verdict, bool(end.cursor)) == (Verdict.COMPLETE, True)


def test_an_expired_delta_token_leads_to_a_complete_read(
    graph: tuple[IdentityProvider, Api, str], tmp_path: Path
) -> None:
    provider, api, cursor = graph
    provider.log.append(("users", {"id": "u0"}))
    for fault in (at("groups/delta", 0, status(410)), at("users/delta", 0, status(410))):
        provider.fault = fault
        steps, end = changes(api, cursor, tmp_path)
        assert (steps, end.verdict, end.answered) == ([], Verdict.FAILED, Answered.CURSOR_REFUSED)


@pytest.mark.parametrize(
    ("fault", "verdict", "answered"),
    [
        (at("users/delta", 0, status(503)), Verdict.PARTIAL, Answered.CHANGES),
        (at("users/u0", 0, status(503)), Verdict.PARTIAL, Answered.CHANGES),
        (at("users/delta", 0, status(400)), Verdict.FAILED, Answered.CURSOR_REFUSED),
        (
            at("users/delta", 0, answer({"value": [{}], "@odata.deltaLink": "x"})),
            Verdict.FAILED,
            Answered.CURSOR_REFUSED,
        ),
        (at("users/delta", 0, answer({"value": []})), Verdict.PARTIAL, Answered.CHANGES),
        (at("users/delta", 0, answer({"value": [], "@odata.nextLink": "delta?x"})), Verdict.PARTIAL, Answered.CHANGES),
        (at("users/delta", 0, answer({"value": [], "@odata.nextLink": "http://127.0.0.1:1/"})), Verdict.FAILED, None),
        (at("users/delta", 0, answer(b"<html>")), Verdict.FAILED, None),
        (
            at("users/delta", 0, answer({"value": [{"id": f"{n}"} for n in range(2001)], "@odata.deltaLink": "x"})),
            Verdict.FAILED,
            Answered.CURSOR_REFUSED,
        ),
    ],
)
def test_changes_that_are_not_read_completely_are_read_again(
    graph: tuple[IdentityProvider, Api, str], tmp_path: Path, fault: Fault, verdict: Verdict, answered: Answered | None
) -> None:
    provider, api, cursor = graph
    provider.add_user("u0", "Renamed", "u0@x.example")
    provider.log.append(("users", {"id": "u0"}))
    provider.fault = fault
    _, end = changes(api, cursor, tmp_path)
    assert (end.verdict, end.answered) == (verdict, answered)
    assert end.cursor in ("", cursor)
    provider.fault = lambda call: False
    if answered is Answered.CHANGES:
        steps, end = changes(api, cursor, tmp_path)
        assert (user_ids(steps), end.verdict) == (["u0"], Verdict.COMPLETE)


def test_an_attribute_that_may_be_hidden_prevents_incremental_reads(new_provider: NewProvider, tmp_path: Path) -> None:
    provider = new_provider("microsoft_graph")
    for user in provider.users.values():
        user["left"] = False
    rules = rules_of("microsoft_graph")
    rules[0] = {**rules[0], "user": {**rules[0]["user"], "disabled": "it.left"}}
    assert end_of(Api(provider, map=rules).read(None, tmp_path)) == End(Verdict.COMPLETE)


# Objects that cannot be used.


def test_an_object_without_an_id_makes_the_read_partial(new_provider: NewProvider) -> None:
    provider = new_provider("okta")
    for odd in ({"id": ""}, {"id": None}, {"id": "x" * 256}, {"id": "n\0l"}, {"id": ["u9"]}, {}, "u9", None, 7):
        provider.fault = at("users", 0, answer([provider.users["u0"], odd]))
        steps = Api(provider).read()
        assert user_ids(steps) == ["u0"]
        assert (end_of(steps).verdict, end_of(steps).except_malformed) == (Verdict.PARTIAL, False)


def test_an_object_without_an_attribute_that_all_have_is_malformed_and_not_enabled(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    del provider.users["u3"]["enabled"]
    steps = Api(provider).read()
    assert user_ids(steps) == ["u0", "u1", "u2", "u4"]
    [malformed] = [step for step in steps if isinstance(step, Malformed)]
    assert (malformed.place, malformed.object) == ("users u3", ObjectId("users", "u3"))
    assert steps[-1] == End(Verdict.PARTIAL, "1 malformed record", except_malformed=True)


@pytest.mark.parametrize("odd", [7, {}, [None], [{}], [{"value": ""}], [{"value": "n\0l"}], "u1"])
def test_a_group_with_an_unreadable_member_is_malformed(new_provider: NewProvider, odd: object) -> None:
    provider = new_provider("scim")
    groups = [{"id": "g1", "displayName": "eng", "members": odd}, provider.group_payload("g3")]
    provider.fault = at("Groups", 0, answer({"totalResults": 2, "Resources": groups}))
    steps = Api(provider).read()
    assert members(steps) == {"all": ["u3", "u4"]}
    assert [step.object for step in steps if isinstance(step, Malformed)] == [ObjectId("groups", "g1")]
    assert end_of(steps).verdict is Verdict.PARTIAL


# Servers that ask to wait.


@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"Retry_After": "7"}, [7, 7]),
        ({"Retry_After": "100000"}, [60, 60]),
        ({"Retry_After": "9" * 400}, [60, 60]),
        ({"Retry_After": "Wed, 25 Nov 2026 12:00:20 GMT"}, [20, 20]),
        ({"Retry_After": "Wed, 25 Nov 2020 12:00:20 GMT"}, [1, 2]),
        ({"Retry_After": "soon"}, [1, 2]),
        ({"X_Rate_Limit_Reset": str(int(NOW.timestamp()) + 9)}, [9, 9]),
        ({}, [1, 2]),
    ],
)
@pytest.mark.parametrize("code", [429, 503])
def test_a_server_that_asks_to_wait_is_asked_again(
    new_provider: NewProvider, headers: dict[str, str], waits: list[float], code: int
) -> None:
    provider = new_provider("okta")
    provider.fault = at("groups/g1/users", 0, status(code, **headers), times=2)
    api = Api(provider)
    assert members(api.read())["eng"] == ["u0", "u1", "u2"]
    assert api.waits == waits


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
def test_a_page_that_stays_refused_makes_the_read_partial(new_provider: NewProvider, code: int) -> None:
    provider = new_provider("okta")
    provider.page = 2
    provider.fault = at("users", 1, status(code))
    api = Api(provider)
    steps = api.read()
    assert user_ids(steps) == ["u0", "u1"]
    assert steps[-1] == End(Verdict.PARTIAL, f"/api/v1/users: the server answers with {code}, 5 times")
    assert api.waits == [1, 2, 4, 8]


def test_a_quota_of_google_is_waited_for(new_provider: NewProvider) -> None:
    provider = new_provider("google_workspace")
    quota = {"error": {"code": 403, "errors": [{"domain": "usageLimits", "reason": "quotaExceeded"}]}}
    provider.fault = at("users", 0, lambda call: call.answer(quota, status=403), times=2)
    api = Api(provider)
    assert (api.end().verdict, api.waits) == (Verdict.COMPLETE, [1, 2])
    provider.fault = at("users", 0, lambda call: call.answer(quota, status=403))
    assert api.end() == End(Verdict.PARTIAL, "/admin/directory/v1/users: the server answers with 403, 5 times")


@pytest.mark.parametrize("code", [503, 404])
def test_a_read_without_the_members_of_a_group_is_partial(new_provider: NewProvider, code: int) -> None:
    provider = new_provider("okta")
    provider.fault = at("groups/g1/users", 0, status(code))
    steps = Api(provider).read()
    assert members(steps) == {"all": ["u3", "u4"]}
    assert (end_of(steps).verdict, end_of(steps).except_malformed) == (Verdict.PARTIAL, False)
    assert end_of(steps).reason.startswith(f"/api/v1/groups/g1/users: the server answers with {code}")


# Lists that are not read to their end.

LINK = '<{}/users?{}>; rel="next"'


def test_an_empty_page_with_a_further_link_is_incomplete(new_provider: NewProvider) -> None:
    provider = new_provider("okta")
    provider.page = 2
    link = LINK.format(provider.base_url, "after=t4")
    provider.fault = at("users", 1, answer([], Link=link), times=1)
    assert Api(provider).end() == End(
        Verdict.PARTIAL, "users: a page is empty and names a further one, after 2 objects"
    )


@pytest.mark.parametrize(
    ("api", "following"),
    [
        ("google_workspace", lambda number: {"kind": "x", "nextPageToken": f"e{number}"}),
        ("microsoft_graph", lambda number: {"value": [], "@odata.nextLink": f"users?e={number}"}),
    ],
)
@pytest.mark.parametrize(
    ("empty", "end"),
    [
        ([100, 0], End(Verdict.COMPLETE)),
        ([60, 60], End(Verdict.COMPLETE)),
        ([101, 0], End(Verdict.PARTIAL, "users: a page is empty and names a further one, after 0 objects")),
    ],
)
def test_up_to_100_empty_pages_in_a_row_are_followed(
    new_provider: NewProvider, api: str, following: Callable[[int], dict[str, object]], empty: list[int], end: End
) -> None:
    """``empty``: the numbers of empty pages before each user. The last page is empty, too."""
    provider = new_provider(api)
    items = "users" if api == "google_workspace" else "value"
    users = list(provider.users.values())
    pages: list[dict[str, object]] = []
    for count, user in zip(empty, users, strict=False):
        pages += [following(len(pages) + more) for more in range(count)]
        pages.append({**following(len(pages)), items: [user]})
    pages.append({"kind": "x", "value": []})
    remaining = iter(pages)
    provider.fault = lambda call: call.answer(next(remaining))
    steps = Api(provider, map=rules_of(api)[:1], sets={"users": {"delta": None}}).read()
    assert end_of(steps) == end
    assert user_ids(steps) == (["u0", "u1"] if end.verdict is Verdict.COMPLETE else [])


@pytest.mark.parametrize("token", [4, "4"])
def test_a_token_may_be_a_number(new_provider: NewProvider, token: object) -> None:
    provider = new_provider("google_workspace")
    users = list(provider.users.values())

    def page(call: Call) -> bool:
        is_last = call.parameters.get("pageToken") == "4"
        body = {"users": users[4:]} if is_last else {"users": users[:4], "nextPageToken": token}
        return call.answer(body)

    provider.fault = page
    steps = Api(provider, map=rules_of("google_workspace")[:1]).read()
    assert user_ids(steps) == ["u0", "u1", "u2", "u3", "u4"]
    assert end_of(steps) == End(Verdict.COMPLETE)


@pytest.mark.parametrize(
    ("api", "key", "following"),
    [
        ("google_workspace", "nextPageToken", True),
        ("google_workspace", "nextPageToken", 1.5),
        ("google_workspace", "nextPageToken", {"token": "t4"}),
        ("microsoft_graph", "@odata.nextLink", {"href": "users"}),
        ("microsoft_graph", "@odata.nextLink", 4),
        ("microsoft_graph", "@odata.nextLink", []),
    ],
)
def test_a_next_page_that_is_not_text_fails_the_read(
    new_provider: NewProvider, api: str, key: str, following: object
) -> None:
    provider = new_provider(api)
    provider.fault = at("users", 0, answer({"users": [], "value": [], key: following}))
    assert Api(provider).end() == End(Verdict.FAILED, f"users: {key} is not text")


@pytest.mark.parametrize(
    "parameter", ['rel="next last"', 'REL="next"', 'rel="last Next"', "rel=next", 'title="x"; Rel=NEXT']
)
def test_the_link_to_the_next_page_is_found_by_its_relation(new_provider: NewProvider, parameter: str) -> None:
    provider = new_provider("okta")
    users = list(provider.users.values())

    def page(call: Call) -> bool:
        if "after" in call.parameters:
            return call.answer(users[4:])
        link = f"<{provider.base_url}/users>; rel=self, <{provider.base_url}/users?after=4>; {parameter}"
        return call.answer(users[:4], headers={"Link": link})

    provider.fault = page
    steps = Api(provider, map=rules_of("okta")[:1]).read()
    assert user_ids(steps) == ["u0", "u1", "u2", "u3", "u4"]
    assert end_of(steps) == End(Verdict.COMPLETE)


def test_a_link_to_a_next_page_without_paging_is_incomplete(new_provider: NewProvider) -> None:
    provider = new_provider("okta")
    provider.page = 2
    steps = Api(provider, paging={"style": "none"}, map=rules_of("okta")[:1]).read()
    assert user_ids(steps) == ["u0", "u1"]
    assert end_of(steps) == End(
        Verdict.PARTIAL, "users: the response links to a next page; set paging: {style: link_header}"
    )


def test_a_page_that_repeats_is_incomplete(new_provider: NewProvider) -> None:
    provider = new_provider("google_workspace")
    count = 0

    def same(call: Call) -> bool:
        nonlocal count
        count += 1
        call.answer({"kind": "x", "users": [provider.users["u0"]], "nextPageToken": f"t{count}"})
        return True

    provider.fault = same
    assert Api(provider, map=rules_of("google_workspace")[:1]).end().reason == ("users: a page repeats after 2 objects")


def test_a_server_that_ignores_the_offset_is_incomplete(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    provider.fault = at("users", 0, answer(list(provider.users.values())))
    assert Api(provider, map=rules_of("keycloak")[:1]).end().reason == "users: a page repeats after 10 objects"


def test_a_cyclic_link_is_incomplete(new_provider: NewProvider) -> None:
    provider = new_provider("okta")
    count = 0

    def cycle(call: Call) -> bool:
        nonlocal count
        count += 1
        following = LINK.format(provider.base_url, f"after={count % 2}")
        call.answer([{**provider.users["u0"], "id": f"u{count}"}], headers={"Link": following})
        return True

    provider.fault = cycle
    end = Api(provider, map=rules_of("okta")[:1]).end()
    assert end == End(Verdict.PARTIAL, "users: the link to the next page repeats after 3 objects")


@pytest.mark.parametrize(
    ("totals", "reason"),
    [
        ([6, 6, 6], "Users: has 6 objects, but 5 were returned"),
        ([5, 5, 6], "Users: totalResults changed from 5 to 6 during the read"),
        ([4, 4, 4], "Users: has 4 objects, but 5 were returned"),
    ],
)
def test_a_total_that_is_not_reached_is_incomplete(new_provider: NewProvider, totals: list[int], reason: str) -> None:
    provider = new_provider("scim")
    pages = [list(provider.users.values())[start : start + 2] for start in (0, 2, 4)]

    def page(call: Call) -> bool:
        number, rest = divmod(int(call.parameters["startIndex"]) - 1, 2)
        call.answer({"totalResults": totals[number], "Resources": [] if rest else pages[number]})
        return True

    pages[1:] = [pages[1] + pages[2], []] if totals[0] == 4 else pages[1:]
    provider.fault = page
    end = Api(provider, map=rules_of("scim")[:1]).end()
    assert end == End(Verdict.PARTIAL, reason)


def test_a_number_of_users_that_is_not_reached_is_incomplete(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    # Somebody was deleted during the read, so that another page lacks somebody else.
    provider.fault = at("users/count", 0, answer(6))
    assert Api(provider).end() == End(Verdict.PARTIAL, "users: has 6 objects, but 5 were returned")


def test_the_number_of_users_is_not_compared_without_a_count(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    provider.fault = at("users/count", 0, answer(6))
    assert Api(provider, sets={"users": {"count": None}}).end() == End(Verdict.COMPLETE)


def test_the_number_of_users_is_that_of_the_same_query(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")

    def enabled(call: Call) -> bool:
        if call.parameters.get("enabled") != "true":
            return False
        is_first = call.parameters.get("first") == "0"
        return call.answer(4 if call.path == "users/count" else list(provider.users.values())[:4] if is_first else [])

    provider.fault = enabled
    sets = {"users": {"query": {"enabled": "true"}}}
    assert Api(provider, map=rules_of("keycloak")[:1], sets=sets).end() == End(Verdict.COMPLETE)


def test_the_groups_below_a_malformed_group_are_read(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    provider.groups["g4"] = Group("sub", [], "g1")
    pages: list[object] = [[{**provider.group_payload("g1"), "people": 7}], []]
    provider.fault = at("groups", 0, lambda call: call.answer(pages[call.parameters["first"] != "0"]))
    sets = {"groups": {"members": {"attribute": "people"}}}
    steps = Api(provider, sets=sets, map=[*rules_of("keycloak")[1:], GROUPS]).read()
    assert [step.object for step in steps if isinstance(step, Malformed)] == [ObjectId("groups", "g1")]
    assert [step.origin.object.id for step in steps if isinstance(step, Found) and step.origin] == ["g4"]
    assert (end_of(steps).verdict, end_of(steps).except_malformed) == (Verdict.PARTIAL, True)


def test_a_group_below_itself_is_incomplete(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    group = provider.group_payload("g1") | {"subGroupCount": 1}
    pages: list[object] = [[group], []]
    provider.fault = at("groups/g1/children", 0, lambda call: call.answer(pages[call.parameters["first"] != "0"]))
    provider.groups["g4"] = Group("sub", [], "g1")
    assert Api(provider).end() == End(Verdict.PARTIAL, "groups g1: is below itself")


def test_an_empty_list_with_success_is_read_as_empty(new_provider: NewProvider) -> None:
    """The guard of the refresh rejects it."""
    for api, empty in {"okta": [], "google_workspace": {"kind": "x"}, "scim": {"totalResults": 0}}.items():
        provider = new_provider(api)
        act = answer(empty)
        provider.fault = at("users" if api != "scim" else "Users", 0, act)
        provider.groups.clear()
        assert Api(provider).read() == [End(Verdict.COMPLETE)]


@pytest.mark.parametrize(
    ("users", "verdict", "refusal"),
    [
        ([], Verdict.FAILED, "is empty, but provided 48 records before"),
        ([{"id": "u0", "status": "ACTIVE", "profile": USER}], Verdict.PARTIAL, "39 of 40 user records"),
    ],
)
def test_a_list_that_lost_its_users_with_success_takes_no_access(
    new_provider: NewProvider, tmp_path: Path, users: list[object], verdict: Verdict, refusal: str
) -> None:
    provider = new_provider("okta")
    for number in range(5, 40):
        provider.add_user(f"u{number}", "U", f"u{number}@x.example")
    engine = open_engine(f"sqlite:///{tmp_path}/usher.db")
    METADATA.create_all(engine)
    organization = dict.fromkeys(("organizationId", "organizationName"), NAMES["okta"])
    rules = [*rules_of("okta"), {"from": "groups", "organization": organization}]
    sources = [BoundedSource(source_from_settings(Api(provider, map=rules).settings), timeout=30)]

    def records() -> list[object]:
        with reading(engine) as connection:
            return list(export_records(connection))

    assert read_directory(engine, sources, clock=utc_now).sources[0].verdict is Verdict.COMPLETE
    before = records()
    provider.fault = at("users", 0, answer(users))
    if not users:
        provider.groups.clear()
    [report] = read_directory(engine, sources, clock=utc_now).sources
    assert report.verdict is verdict
    assert refusal in report.reason
    assert records() == before
    engine.dispose()


# Reads that fail.


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (hang, "no answer within the time allowed: see that base_url is right"),
        (drip, "base_url: its responses took too long; check that it is the address of the API"),
        (endless, "base_url: its response is larger than 33554432 bytes"),
        (cut_off, "the connection was lost before an answer came"),
        (answer(b"<html>no</html>", Content_Type="text/html"), "/api/v1/users: the response is not JSON (text/html)"),
        (answer(b"[" * 100_000), "/api/v1/users: the response is not JSON (nested too deep)"),
        (answer(b"[" * 2_000 + b"]" * 2_000), "/api/v1/users: the response is not JSON (nested too deep)"),
        (answer(b""), "/api/v1/users: the response is not JSON (application/json)"),
        (answer({"users": []}), "users: the response has no list; check base_url"),
        (answer(7), "users: the response has no list"),
        (status(302, Location="https://elsewhere.example/"), "base_url: it answers with a redirect, which is not foll"),
        (status(401), "/api/v1/users: the server refuses the credentials in auth (401)"),
        (status(403), "/api/v1/users: the server answers with 403; grant the client the right to read it"),
        (status(404), "/api/v1/users: the server answers with 404; check base_url and the path"),
        (status(400), "/api/v1/users: the server answers with 400"),
        (status(204), "/api/v1/users: the server answers with 204"),
        (
            answer([{"id": "u0", "profile": {}}], Link='<https://elsewhere.example/x>; rel="next"'),
            "a link to the next page leads away from 127.0.0.1",
        ),
        (answer([{"id": "u0"}], Link='<http://127.0.0.1:1/x>; rel="next"'), "a link to the next page leads away"),
        (answer([{"id": "u0"}], Link='<http://[/x>; rel="next"'), "a link to the next page leads away"),
        (answer([{"id": "u0"}], Link='<ftp:x>; rel="next"'), "a link to the next page leads away"),
    ],
)
def test_a_server_that_misbehaves_fails_the_read_within_its_limits(
    new_provider: NewProvider, fault: Callable[[Call], object], reason: str
) -> None:
    provider = new_provider("okta")
    provider.fault = at("users", 0, fault)
    began = time.monotonic()
    end = Api(provider).end()
    assert end.verdict is Verdict.FAILED
    assert end.reason.startswith(reason)
    assert end.login_refused is ("(401)" in end.reason)
    assert time.monotonic() - began < 8


def test_a_failure_among_parallel_requests_fails_the_read(new_provider: NewProvider) -> None:
    provider = new_provider("okta")
    provider.fault = at("groups/g3/users", 0, answer(b"<html>"))
    assert Api(provider).end().reason.startswith("/api/v1/groups/g3/users: the response is not JSON")


def test_a_body_without_total_results_is_not_scim(new_provider: NewProvider) -> None:
    provider = new_provider("scim")
    provider.fault = at("Users", 0, answer({"Resources": []}))
    assert Api(provider).end().reason.startswith("Users: the response has no number totalResults")
    provider.fault = at("Users", 0, answer({"error": "x"}))
    assert Api(provider).end().reason.startswith("Users: the response has no list Resources")


# Authentication.


def test_a_token_is_sent_in_its_header(new_provider: NewProvider) -> None:
    for api, auth, header in (
        ("okta", {"token": TOKEN}, f"SSWS {TOKEN}"),
        ("scim", {"token": TOKEN}, f"Bearer {TOKEN}"),
        ("okta", {"token": TOKEN, "token_scheme": ""}, TOKEN),
        ("scim", {"username": "usher", "password": "ü:"}, "Basic dXNoZXI6w7w6"),
    ):
        provider = new_provider(api)
        provider.authorization = header.__eq__
        assert Api(provider, auth=auth).end() == End(Verdict.COMPLETE)
        assert Api(provider).end().login_refused
    provider.fault = lambda call: call.handler.headers["X-Key"] != TOKEN and call.answer({}, status=401)
    provider.authorization = lambda header: not header
    assert Api(provider, auth={"token": TOKEN, "token_header": "X-Key", "token_scheme": ""}).end().verdict is (
        Verdict.COMPLETE
    )


def with_token(provider: IdentityProvider) -> Callable[[str], bool]:
    """Only the newest access token is accepted."""
    return lambda header: bool(provider.tokens) and header == f"Bearer {provider.tokens[-1]}"


def credentials(provider: IdentityProvider) -> dict[str, object]:
    return {"token_url": f"{provider.url}/token", "client_id": CLIENT, "client_secret": SECRET}


def test_an_access_token_is_requested_once(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    provider.authorization = with_token(provider)
    assert Api(provider, auth=credentials(provider)).end() == End(Verdict.COMPLETE)
    assert len(provider.tokens) == 1


def test_an_access_token_that_was_withdrawn_is_replaced(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    provider.authorization = with_token(provider)

    def withdraw(call: Call) -> None:
        provider.tokens.append("newer")
        call.answer({}, status=401)

    provider.fault = at("groups", 0, withdraw, times=1)
    assert Api(provider, auth=credentials(provider)).end() == End(Verdict.COMPLETE)
    assert len(provider.tokens) == 3
    provider.fault = at("groups", 0, status(401))
    end = Api(provider, auth=credentials(provider)).end()
    assert end.login_refused
    assert end.reason == "/admin/realms/corp/groups: the server refuses the credentials in auth (401)"


def test_an_access_token_is_replaced_before_it_expires(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    provider.lifetime = 0.0001
    provider.authorization = lambda header: header.startswith(f"Bearer {TOKEN}")
    assert Api(provider, auth=credentials(provider)).end() == End(Verdict.COMPLETE)
    assert len(provider.tokens) > 2


def account(provider: IdentityProvider, **changes: object) -> str:
    key = KEY.as_pem(private=True).decode()
    fields = {"type": "service_account", "client_email": "usher@project.example", "private_key": key}
    return json.dumps({**fields, "private_key_id": "k1", "token_uri": f"{provider.url}/token", **changes})


def test_a_service_account_acts_for_an_administrator(new_provider: NewProvider) -> None:
    provider = new_provider("google_workspace")
    provider.authorization = with_token(provider)
    auth = {"service_account_key": account(provider), "subject": "admin@x.example"}
    assert Api(provider, auth=auth).end() == End(Verdict.COMPLETE)
    assert Api(provider, auth={**auth, "subject": "other@x.example"}).end().reason == (
        "auth: the token endpoint refuses the client (invalid_client); check service_account_key, subject and scope"
    )
    for key in ("no key", KEY.as_pem(private=False).decode()):
        auth["service_account_key"] = account(provider, private_key=key)
        assert Api(provider, auth=auth).end().reason == (
            "auth: the private_key in service_account_key is not an RSA key"
        )


@pytest.mark.parametrize(
    ("code", "body", "reason"),
    [
        (
            401,
            {"error": "invalid_client"},
            "auth: the token endpoint refuses the client (invalid_client); check client",
        ),
        (400, {"error": "x" * 2000}, "auth: the token endpoint refuses the client (xxx"),
        (200, {"error": ["y"]}, "auth: the token endpoint refuses the client (['y'])"),
        (503, {}, "auth: the token endpoint answers with an error (503)"),
        (404, b"<html>", "auth: the token endpoint answers with an error (404)"),
        (200, b"<html>", "auth: the token endpoint sends an unusable response (not JSON"),
        (200, b"[" * 100_000, "auth: the token endpoint sends an unusable response (not JSON"),
        (200, [], "auth: the token endpoint sends an unusable response (not JSON"),
        (200, {}, "auth: the token endpoint answers without an access_token"),
        (200, {"access_token": 7}, "auth: the token endpoint answers without an access_token"),
        (200, {"access_token": "a\r\nb"}, "auth: the access_token contains control characters"),
        (429, {}, "auth: the token endpoint answers with an error (429)"),
        (429, {"error": "invalid_client"}, "auth: the token endpoint answers with an error (429)"),
        (400, {"error": "slow_down"}, "auth: the token endpoint answers with a temporary error (slow_down)"),
        (400, {"error": "temporarily_unavailable"}, "auth: the token endpoint answers with a temporary error (temp"),
        (400, {"error": "server_error"}, "auth: the token endpoint answers with a temporary error (server_error)"),
        (200, {"access_token": "a", "expires_in": [1]}, "auth: the token endpoint sends an unusable response"),
        (200, {"access_token": "a", "expires_in": "soon"}, "auth: the token endpoint sends an unusable response"),
        (200, b'{"access_token": "a", "expires_in": 1e999}', "auth: the token endpoint sends an unusable response"),
        (302, {}, "auth.token_url: it answers with a redirect"),
    ],
)
def test_a_token_endpoint_that_refuses_or_misbehaves_fails_the_read(
    new_provider: NewProvider, code: int, body: object, reason: str
) -> None:
    provider = new_provider("keycloak")
    provider.token_answers = [(code, body)]
    end = Api(provider, auth=credentials(provider)).end()
    assert end.verdict is Verdict.FAILED
    assert end.reason.startswith(reason)
    assert end.login_refused is ("refuses the client" in reason)


def test_a_token_endpoint_that_is_away_fails_the_read(new_provider: NewProvider) -> None:
    provider = new_provider("keycloak")
    auth = {**credentials(provider), "token_url": "http://127.0.0.1:1/token"}
    reason = Api(provider, auth=auth).end().reason
    assert reason.startswith(
        "nothing listens at 127.0.0.1:1 (connection refused): see that it runs and that auth.token_"
    )


def test_requests_go_through_the_proxy(new_provider: NewProvider) -> None:
    provider = new_provider("okta")
    base_url = "http://okta.invalid/api/v1"
    links = {"users": {"path": "users"}, "groups": {"path": "groups"}}
    api = Api(provider, base_url=base_url, proxy=provider.url, allow_plaintext=True, sets=links)
    assert api.end() == End(Verdict.COMPLETE)


# Settings.


def key_with(token_uri: str) -> str:
    return json.dumps({"client_email": "a", "private_key": "hunter2", "token_uri": token_uri})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"base_url": "x"}, "must be an http or https URL"),
        ({"base_url": "https://me:hunter2@h/x"}, "must not contain a user name or password; credentials go into auth"),
        ({"base_url": "https://h/x?key=y"}, "must not have a query or fragment; credentials go into auth"),
        ({"base_url": "http://h/x"}, "base_url: without TLS, secrets could be read on the way"),
        ({"preset": "azure"}, "preset"),
        ({"preset": None}, "map: rule 1 reads from users, but the sets are"),
        ({"sets": {"more": {"id": "x"}}}, "sets.more: the preset has no such set, so it needs a path"),
        ({"sets": {"users": {"path": "/users"}}}, "path"),
        ({"sets": {"users": {"path": "users?x"}}}, "path"),
        ({"sets": {"groups": {"members": {}}}}, "needs either attribute, a list in the object, or path"),
        ({"sets": {"groups": {"members": {"attribute": "a", "path": "b/{id}"}}}}, "needs either attribute"),
        ({"sets": {"groups": {"members": {"path": "groups/members"}}}}, "members.path\\n.*needs {id}"),
        ({"sets": {"groups": {"children": "groups/id/children"}}}, "children\\n.*needs {id}"),
        (
            {"sets": {"users": {"query": {"$filter": "x"}, "delta": {"path": "users/delta"}}}},
            r"sets.users: delta reports all changes, so that it cannot be used with \$filter",
        ),
        (
            {"sets": {"people": {"path": "p", "query": {"$search": "x"}, "delta": {"path": "p/delta"}}}},
            r"sets.people: delta reports all changes, so that it cannot be used with \$search",
        ),
        ({"auth": {"token_url": "https://h/t"}}, "auth: token_url needs client_id and client_secret, or service_acc"),
        ({"paging": {"style": "token", "next": "x"}}, "paging: style token needs parameter"),
        ({"paging": {"style": "link"}}, "paging: style link needs next"),
        ({"paging": {"style": "pages"}}, "style"),
        ({"map": [{"from": "users", "each": "members", "fill": {"userId": "member.x"}}]}, "users has no members"),
        ({"auth": {"token": "hunter2", "username": "u", "password": "p"}}, "auth: has token and username"),
        ({"auth": {"token": "hunter2\n"}}, "must be printable ASCII"),
        ({"auth": {"username": "u"}}, "username and password belong together"),
        ({"auth": {"client_id": "u", "token_url": "https://h"}}, "client_id and client_secret belong together"),
        ({"auth": {"client_id": "u", "client_secret": "hunter2"}}, "client_id needs token_url"),
        (
            {"auth": {"client_id": "u", "client_secret": "hunter2", "token_url": "http://h/t"}},
            "auth.token_url: without TLS",
        ),
        ({"auth": {"subject": "u"}}, "subject belongs to service_account_key"),
        ({"auth": {"service_account_key": "hunter2"}}, "not the key file of a service account"),
        ({"auth": {"service_account_key": '{"client_email": "hunter2"}'}}, "not the key file of a service account"),
        (
            {"auth": {"service_account_key": '{"client_email": "a", "private_key": "hunter2"}'}},
            "names no usable token_uri, so token_url is needed",
        ),
        # urllib3 connects to evil.example.
        ({"auth": {"service_account_key": key_with(r"http://evil.example\@127.0.0.1")}}, "names no usable token_uri"),
        ({"auth": {"service_account_key": key_with("https://hunter2@h")}}, "names no usable token_uri"),
        ({"base_url": "http://127.0.0.1", "proxy": "http://h:3128"}, "base_url: without TLS"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"ca_file": "/nowhere.pem"}, "must be a readable PEM file"),
        ({"proxy": "socks5://h"}, "must be an address such as http"),
    ],
)
def test_settings_refuse(settings: dict[str, object], reason: str) -> None:
    source = {"type": "http", "name": "idp", "base_url": "https://h/x", "preset": "okta", "map": rules_of("okta")[:1]}
    with pytest.raises(ValidationError, match=reason) as refused:
        DirectorySettings.model_validate({"sources": [source | settings]})
    assert "hunter2" not in "".join(error["msg"] for error in refused.value.errors())
