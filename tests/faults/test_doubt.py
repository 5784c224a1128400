"""Outcomes of repeated calls whose first try may have succeeded."""

from random import Random

import pytest

from app.access.records import AccessRole, AccessType, Folder, Membership, Organization, User
from tests.faults.comparing import differences, ledger_differences
from tests.faults.layer import Fault
from tests.faults.world import FaultyWorld
from tests.worlds.company import HOME, Company

ADA = User(user_id="ada", name="Ada", email="ada@acme.example")
MEMBER = Membership(organization_id=HOME, user_id="ada", access_role=AccessRole.EDITOR)


@pytest.fixture
def world(any_world: FaultyWorld) -> FaultyWorld:
    any_world.begin(Company(Random(1), size=0))
    assert any_world.sync().status == "done"
    return any_world


def in_step(world: FaultyWorld) -> bool:
    world.time.move_on(hours=7)
    world.sync()
    return not differences(world) and not ledger_differences(world)


@pytest.mark.parametrize("then", [Fault.UNAUTHORIZED, Fault.ITEMS_FAILED, Fault.ITEMS_FAILED_500])
@pytest.mark.parametrize("first", [Fault.RESET_AFTER, Fault.CUT, Fault.LATE])
def test_add_that_may_have_come_through_is_ours_to_delete(world: FaultyWorld, first: Fault, then: Fault) -> None:
    world.company.add(ADA, MEMBER)
    world.layer.script = {"add_users": [first, then]}
    world.sync()
    assert ("acme", "organization", "", "ada") in world.held()["users"]
    del world.company.records[MEMBER.key]
    assert in_step(world)
    assert not world.held()["users"]


@pytest.mark.parametrize("then", [Fault.UNAUTHORIZED, Fault.ITEMS_FAILED])
def test_update_with_an_unknown_outcome_is_sent_again(world: FaultyWorld, then: Fault) -> None:
    folder = Folder(organization_id=HOME, folder_id="f", folder_name="F", access_type=AccessType.PUBLIC)
    world.company.add(folder)
    world.sync()
    world.company.add(Folder(organization_id=HOME, folder_id="f", folder_name="F", access_type=AccessType.RESTRICTED))
    world.layer.script = {"update_folder_access": [Fault.RESET_AFTER, then]}
    world.sync()
    world.company.add(folder)  # as in the ledger, but not in the backend
    assert in_step(world)


def test_lost_delete_is_found_by_a_verify_and_sent_again(world: FaultyWorld) -> None:
    world.company.add(ADA, MEMBER)
    world.sync()
    del world.company.records[MEMBER.key]
    world.layer.script = {"delete_users": [Fault.LOST_WRITE]}
    world.sync()
    assert ("acme", "organization", "", "ada") in world.held()["users"]
    run = world.sync(verify=True)
    assert run.report["verify"]["undeleted"] == 1
    assert run.report["verify"]["foreign"] == {}
    assert ("acme", "organization", "", "ada") not in world.held()["users"]
    assert in_step(world)


def test_lost_delete_is_found_by_a_verify_of_that_user_alone(world: FaultyWorld) -> None:
    """The directory and the ledger contain nothing of the user: only the deletion names the place to read."""
    world.company.add(ADA, MEMBER)
    world.sync()
    for record in (ADA, MEMBER):
        del world.company.records[record.key]
    world.layer.script = {"delete_users": [Fault.LOST_WRITE]}
    world.sync()
    assert ("acme", "organization", "", "ada") in world.held()["users"]
    run = world.sync(verify=True, user_ids=("ada",))
    assert run.report["verify"]["undeleted"] == 1
    assert ("acme", "organization", "", "ada") not in world.held()["users"]
    assert in_step(world)


def test_lost_delete_of_a_whole_organization_is_found(world: FaultyWorld) -> None:
    world.company.add(Organization(organization_id="globex", organization_name="Globex"))
    world.sync()
    del world.company.records["organization", "globex"]
    world.layer.script = {"delete_organizations": [Fault.LOST_WRITE]}
    world.sync()
    assert "globex" in world.held()["organizations"]
    run = world.sync(verify=True)
    assert run.report["verify"]["undeleted"] == 1
    assert "globex" not in world.held()["organizations"]
    assert in_step(world)


def test_deletion_that_a_verify_has_seen_is_settled(world: FaultyWorld) -> None:
    """Who comes later under the same name is somebody else's."""
    world.company.add(ADA, MEMBER)
    world.sync()
    del world.company.records[MEMBER.key]
    world.sync()
    world.sync(verify=True)
    world.call_backend(
        "add_users", organizationId=HOME, users=[{"userId": "ada", "name": "Ada", "email": "ada@else.example"}]
    )
    run = world.sync(verify=True)
    assert run.report["verify"]["undeleted"] == 0
    assert run.report["verify"]["foreign"] == {"organizationUser": 1}
    assert ("acme", "organization", "", "ada") in world.held()["users"]


def test_a_missing_item_that_cannot_be_added_is_not_recorded_as_present(world: FaultyWorld) -> None:
    world.company.add(ADA, MEMBER)
    world.sync()
    world.call_backend("delete_users", organizationId=HOME, userIds=["ada"])
    world.company.add(User(user_id="ada", name="Ada L.", email="ada@acme.example"))
    world.layer.script = {"add_users": [Fault.ITEMS_FAILED]}
    world.sync()
    world.company.add(ADA)  # as the ledger has it
    assert in_step(world)
