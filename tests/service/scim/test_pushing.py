"""Pushes with SCIM take effect in the same call."""

import json
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.service.scim.conftest import OTHER_TOKEN, RULES, Clock, Directory, settings_with


def test_a_member_has_access_at_once(directory: Directory) -> None:
    ada = directory.user("ada")
    directory.group("acme", ada)
    assert directory.may(ada, "acme")


def test_members_may_come_before_their_users(directory: Directory) -> None:
    group = directory.group("acme", "ext-7", "bob")
    ada = directory.user("ada", externalId="ext-7")
    bob = directory.user("bob")
    assert directory.may(ada, "acme")
    assert directory.may(bob, "acme")
    members = directory.call("GET", f"/Groups/{group}").get_json()["members"]
    assert sorted(one["value"] for one in members) == sorted([ada, bob])


def test_deactivation_ends_access_and_reactivation_restores_it(directory: Directory) -> None:
    ada = directory.user("ada")
    directory.group("acme", ada)
    directory.patch(f"/Users/{ada}", {"op": "Replace", "path": "active", "value": "False"})
    assert not directory.may(ada, "acme")
    directory.patch(f"/Users/{ada}", {"op": "Replace", "path": "active", "value": True})
    assert directory.may(ada, "acme")


@pytest.mark.parametrize(
    "odd",
    [
        {"emails": [{"value": "ada@corp.local", "type": "work"}]},
        {"emails": [{"value": ""}]},
        {"profileUrl": "::"},
        {"photos": [{"value": "no picture"}]},
        {"x509Certificates": [{"value": "none"}]},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_an_odd_attribute_does_not_prevent_deactivation(directory: Directory, odd: dict[str, Any]) -> None:
    ada = directory.user("ada")
    directory.group("acme", ada)
    body = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "ada", "active": False, **odd}
    answer = directory.call("PUT", f"/Users/{ada}", body)
    assert answer.status_code == 200, answer.text
    assert not directory.may(ada, "acme")


def test_a_replacement_without_active_does_not_reactivate(directory: Directory) -> None:
    ada = directory.user("ada")
    directory.group("acme", ada)
    body = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "ada"}
    directory.call("PUT", f"/Users/{ada}", {**body, "active": False})
    assert directory.call("PUT", f"/Users/{ada}", body).get_json()["active"] is False
    assert not directory.may(ada, "acme")
    directory.call("PUT", f"/Users/{ada}", {**body, "active": True})
    assert directory.may(ada, "acme")


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "active"},
        {"op": "replace", "path": "active", "value": None},
        {"op": "add", "value": {"active": None}},
    ],
    ids=["remove", "null", "null without a path"],
)
def test_a_patch_that_removes_active_does_not_reactivate(directory: Directory, operation: dict[str, Any]) -> None:
    ada, bob = directory.user("ada"), directory.user("bob")
    directory.group("acme", ada, bob)
    directory.patch(f"/Users/{ada}", {"op": "replace", "path": "active", "value": False})
    for user in (ada, bob):
        directory.patch(f"/Users/{user}", operation)
        assert "active" not in directory.call("GET", f"/Users/{user}").get_json()
        directory.patch(f"/Users/{user}", {"op": "replace", "path": "title", "value": "Countess"})
    assert (directory.may(ada, "acme"), directory.may(bob, "acme")) == (False, True)
    assert not directory.read(full=["entra"]).changed
    body = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "ada"}
    assert directory.call("PUT", f"/Users/{ada}", body).status_code == 200
    assert not directory.may(ada, "acme")
    directory.patch(f"/Users/{ada}", {"op": "replace", "path": "active", "value": True})
    assert directory.may(ada, "acme")


def test_deactivation_ends_membership_also_if_the_rule_fails_for_the_group(directory: Directory, clock: Clock) -> None:
    rules = [{**RULES[2], "membership": {**RULES[2]["membership"], "userId": "member.externalId"}}]
    url = str(directory.settings.database_url)
    right = Directory.of(settings_with(url, rules), directory.engine, clock)
    ada = right.user("ada", externalId="e1")
    right.group("acme", ada)
    broken = [{**rules[0], "membership": {**rules[0]["membership"], "organizationId": "string(int(it.displayName))"}}]
    wrong = Directory.of(settings_with(url, broken), directory.engine, clock)
    wrong.patch(f"/Users/{ada}", {"op": "replace", "path": "active", "value": False})
    with directory.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM source_membership").scalar_one() == 0


def test_a_deleted_user_has_no_access(directory: Directory) -> None:
    ada = directory.user("ada")
    group = directory.group("acme", ada)
    assert directory.call("DELETE", f"/Users/{ada}").status_code == 204
    assert not directory.may(ada, "acme")
    assert "members" not in directory.call("GET", f"/Groups/{group}").get_json()


def test_members_of_nested_groups_are_members(directory: Directory) -> None:
    ada = directory.user("ada")
    inner = directory.group("inner", ada)
    outer = directory.group("outer", inner)
    assert directory.may(ada, "outer")
    directory.patch(f"/Groups/{inner}", {"op": "add", "path": "members", "value": [{"value": outer}]})
    directory.patch(f"/Groups/{inner}", {"op": "remove", "path": f'members[value eq "{ada}"]'})
    assert not directory.may(ada, "outer")
    assert not directory.may(ada, "inner")


def test_a_read_yields_pushed_records(directory: Directory) -> None:
    ada = directory.user("ada")
    bob = directory.user("bob", active=False)
    inner = directory.group("inner", ada, bob)
    directory.group("outer", inner)
    report = directory.read()
    assert not report.changed
    assert [source.verdict for source in report.sources] == ["complete"]
    assert directory.read().sources[0].answered == "changes"


def test_a_read_does_not_undo_pushes_meanwhile(directory: Directory) -> None:
    ada, bob, eve = (directory.user(name) for name in ("ada", "bob", "eve"))
    acme = directory.group("acme", ada, bob)
    new: list[str] = []

    def push() -> None:
        directory.patch(f"/Groups/{acme}", {"op": "remove", "path": f'members[value eq "{ada}"]'})
        directory.patch(f"/Groups/{acme}", {"op": "add", "path": "members", "value": [{"value": eve}]})
        directory.call("DELETE", f"/Users/{bob}")
        new.append(directory.user("new", displayName="New"))

    report = directory.read(meanwhile=push, full=["entra"])
    assert report.sources[0].verdict == "complete"
    assert [directory.may(user, "acme") for user in (ada, bob, eve)] == [False, False, True]
    assert not directory.read(full=["entra"]).changed
    directory.patch(f"/Groups/{acme}", {"op": "add", "path": "members", "value": [{"value": new[0]}]})
    assert directory.may(new[0], "acme")


def test_a_change_of_the_rules_makes_all_records_again(directory: Directory) -> None:
    ada = directory.user("ada", title="left")
    directory.group("acme", ada)
    directory.read()
    rules = [{**RULES[0], "when": '!has(it.title) || it.title != "left"'}, *RULES[1:]]
    changed = settings_with(str(directory.settings.database_url), rules)
    report = directory.read(changed)
    assert (report.sources[0].answered, report.changed) == ("", True)
    assert not directory.may(ada, "acme")
    assert directory.read(changed).sources[0].answered == "changes"


def test_the_guard_refuses_rules_that_lose_everybody(directory: Directory) -> None:
    users = [directory.user(f"user-{number}") for number in range(25)]
    directory.group("acme", *users)
    directory.read()
    changed = settings_with(str(directory.settings.database_url), [{**RULES[0], "when": "false"}, *RULES[1:]])
    report = directory.read(changed)
    assert "--accept-shrink entra" in report.sources[0].refused
    assert directory.may(users[0], "acme")


def test_a_source_to_which_nothing_was_pushed_is_no_failure(directory: Directory) -> None:
    push = {"sequence": 1, "upsert": [{"kind": "organization", "organizationId": "other", "organizationName": "Other"}]}
    headers = {"Authorization": f"Bearer {OTHER_TOKEN}"}
    assert directory.client.post("/directory/app/changes", json=push, headers=headers).status_code == 200
    assert [(one.name, one.verdict.value) for one in directory.read().sources] == [("entra", "complete")]


def test_a_resource_that_rules_cannot_use_is_refused_unless_it_is_disabled(database_url: str, engine: Engine) -> None:
    rules: list[dict[str, Any]] = [
        {"from": "users", "user": {"userId": "it.id", "name": "it.title", "email": "it.email"}}
    ]
    directory = Directory.of(settings_with(database_url, rules), engine, Clock())
    body = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "ada"}
    answer = directory.call("POST", "/Users", body)
    assert (answer.status_code, answer.get_json()["scimType"]) == (400, "invalidValue")
    assert "rule 1: name" in answer.get_json()["detail"]
    ada = directory.user("ada", title="Ada")
    directory.patch(f"/Users/{ada}", {"op": "remove", "path": "title"}, status=400)
    directory.patch(f"/Users/{ada}", {"op": "remove", "path": "title"}, {"op": "replace", "value": {"active": False}})
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT user_id, disabled FROM model_user").all() == [(ada, True)]


def test_inactive_users_provide_nothing_to_users_of_other_sources(database_url: str, engine: Engine) -> None:
    rules: list[dict[str, Any]] = [
        {"from": "groups", "organization": {"organizationId": "it.displayName", "organizationName": "it.displayName"}},
        {
            "from": "groups",
            "each": "members",
            "membership": {"organizationId": "it.displayName", "userId": "member.userName"},
        },
    ]
    directory = Directory.of(settings_with(database_url, rules), engine, Clock())
    push = {"sequence": 1, "upsert": [{"kind": "user", "userId": "ada", "name": "Ada", "email": "ada@acme.example"}]}
    headers = {"Authorization": f"Bearer {OTHER_TOKEN}"}
    assert directory.client.post("/directory/app/changes", json=push, headers=headers).status_code == 200
    ada = directory.user("ada")
    directory.group("acme", ada)
    assert directory.may("ada", "acme")
    directory.patch(f"/Users/{ada}", {"op": "replace", "value": {"active": False}})
    assert not directory.may("ada", "acme")
    directory.patch(f"/Users/{ada}", {"op": "replace", "value": {"active": True}})
    assert directory.may("ada", "acme")
    directory.patch(f"/Users/{ada}", {"op": "replace", "path": "userName", "value": "eve"})
    assert not directory.may("ada", "acme")


def test_rules_for_members_ignore_groups_that_they_do_not_match(database_url: str, engine: Engine) -> None:
    membership = {"organizationId": "it.displayName.substring(5)", "userId": "member.userId"}
    rule = {"from": "groups", "when": 'it.displayName.startsWith("edit-")', "each": "members", "membership": membership}
    directory = Directory.of(settings_with(database_url, [*RULES[:2], rule]), engine, Clock())
    ada = directory.user("ada")
    directory.group("acme")
    directory.group("it", ada)
    group = directory.group("edit-acme", ada)
    assert directory.may(ada, "acme")
    directory.patch(f"/Groups/{group}", {"op": "replace", "path": "displayName", "value": "all"})
    assert not directory.may(ada, "acme")
    assert [one.verdict.value for one in directory.read(full=["entra"]).sources] == ["complete"]


def test_a_group_that_a_rule_for_its_members_matches_is_refused_if_the_rule_fails(
    database_url: str, engine: Engine
) -> None:
    membership = {"organizationId": "it.displayName.substring(50)", "userId": "member.userId"}
    rule = {"from": "groups", "when": 'it.displayName.startsWith("edit-")', "each": "members", "membership": membership}
    directory = Directory.of(settings_with(database_url, [*RULES[:2], rule]), engine, Clock())
    body = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:Group"], "displayName": "edit-acme"}
    answer = directory.call("POST", "/Groups", body)
    assert (answer.status_code, answer.get_json()["scimType"]) == (400, "invalidValue")
    assert "rule 3: organizationId" in answer.get_json()["detail"]


def test_a_group_of_leavers_also_disables_inactive_users(database_url: str, engine: Engine) -> None:
    leavers = {"from": "groups", "when": 'it.displayName == "leavers"', "each": "members"}
    rules = [*RULES, {**leavers, "fill": "member.externalId", "user": {"disabled": True}}]
    directory = Directory.of(settings_with(database_url, rules), engine, Clock())
    user = {"userId": "ada", "name": "Ada", "email": "ada@acme.example", "aliases": ["e1"]}
    membership = {"kind": "membership", "organizationId": "acme", "userId": "ada"}
    push = {"sequence": 1, "upsert": [{"kind": "user", **user}, membership]}
    headers = {"Authorization": f"Bearer {OTHER_TOKEN}"}
    assert directory.client.post("/directory/app/changes", json=push, headers=headers).status_code == 200
    directory.group("acme")
    ada = directory.user("ada", externalId="e1")
    assert directory.may("ada", "acme")
    directory.group("leavers", ada)
    assert not directory.may("ada", "acme")
    directory.patch(f"/Users/{ada}", {"op": "replace", "value": {"active": False}})
    assert not directory.may("ada", "acme")
    assert not directory.read(full=["entra"]).changed


def test_renaming_a_group_moves_all_its_members(directory: Directory) -> None:
    users = [directory.user(f"user-{number}") for number in range(3)]
    acme = directory.group("acme", *users)
    directory.patch(f"/Groups/{acme}", {"op": "replace", "path": "displayName", "value": "umbrella"})
    assert [(directory.may(user, "acme"), directory.may(user, "umbrella")) for user in users] == [(False, True)] * 3
    assert directory.call("DELETE", f"/Groups/{acme}").status_code == 204
    assert not any(directory.may(user, "umbrella") for user in users)


def test_a_put_replaces_members_and_attributes(directory: Directory) -> None:
    ada, bob = directory.user("ada"), directory.user("bob")
    acme = directory.group("acme", ada)
    body = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:Group"], "displayName": "acme"}
    answer = directory.call("PUT", f"/Groups/{acme}", body | {"members": [{"value": bob}]})
    assert [one["value"] for one in answer.get_json()["members"]] == [bob]
    assert (directory.may(ada, "acme"), directory.may(bob, "acme")) == (False, True)
    version = answer.headers["ETag"]
    stale = directory.call("PUT", f"/Groups/{acme}", body, headers={"If-Match": 'W/"1"'})
    assert stale.status_code == 412
    assert directory.call("PUT", f"/Groups/{acme}", body, headers={"If-Match": version}).status_code == 200
    assert not directory.may(bob, "acme")


def test_a_request_that_changes_nothing_makes_no_revision(directory: Directory) -> None:
    ada = directory.user("ada", title="Countess")
    acme = directory.group("acme", ada)
    before = directory.revisions()
    directory.patch(f"/Users/{ada}", {"op": "replace", "path": "title", "value": "Countess"})
    directory.patch(f"/Users/{ada}", {"op": "replace", "path": "nickName", "value": "no rule names it"})
    directory.patch(f"/Groups/{acme}", {"op": "add", "path": "members", "value": [{"value": ada}]})
    assert directory.revisions() == before
    directory.patch(f"/Groups/{acme}", {"op": "remove", "path": "members", "value": [{"value": ada}]})
    assert directory.revisions() == before + 1


def test_one_member_changes_one_record(directory: Directory) -> None:
    users = [directory.user(f"user-{number}") for number in range(40)]
    acme = directory.group("acme", *users)
    directory.patch(f"/Groups/{acme}", {"op": "remove", "path": f'members[value eq "{users[0]}"]'})
    with directory.engine.connect() as connection:
        query = "SELECT subject FROM audit WHERE action = 'pushed' ORDER BY audit_id DESC"
        subjects = connection.exec_driver_sql(query).scalars().all()
        changes = connection.exec_driver_sql(
            "SELECT changes FROM access_revision ORDER BY revision DESC LIMIT 1"
        ).scalar_one()
    assert json.loads(changes) == {"membership": {"added": 0, "updated": 0, "removed": 1}}
    assert all(one.startswith("entra: push ") for one in subjects)


@pytest.mark.parametrize(
    ("sections", "headers", "scheme"),
    [
        ({}, {}, "http"),
        ({}, {"X-Forwarded-Proto": "https"}, "http"),
        ({"server": {"trusted_proxies": 1}}, {"X-Forwarded-Proto": "https"}, "https"),
        ({"console": {"public_url": "https://Localhost"}}, {}, "https"),
        ({"console": {"public_url": "https://other.example"}}, {}, "http"),
        (
            {"console": {"public_url": "http://localhost"}, "server": {"trusted_proxies": 1}},
            {"X-Forwarded-Proto": "https"},
            "https",
        ),
    ],
)
def test_locations_have_the_scheme_of_the_client(
    directory: Directory, sections: dict[str, Any], headers: dict[str, str], scheme: str
) -> None:
    settings = settings_with(directory.settings.database_url, RULES, **sections)
    directory = Directory.of(settings, directory.engine, directory.clock)
    body = {"schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"], "userName": "ada"}
    answer = directory.call("POST", "/Users", body, headers=headers)
    location = answer.get_json()["meta"]["location"]
    assert answer.headers["Location"] == location
    assert location.startswith(f"{scheme}://localhost/scim/entra/v2/Users/")
