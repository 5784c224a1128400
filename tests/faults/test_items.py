"""Items that fail in calls without results of items."""

from random import Random

import pytest

from app.access.records import Document, Folder, Group, GroupMember, User
from tests.faults.comparing import differences, ledger_differences
from tests.faults.layer import Fault
from tests.faults.world import FaultyWorld
from tests.worlds.company import HOME, Company

PEOPLE = [User(user_id=f"u{number}", name=f"U {number}", email=f"u{number}@acme.example") for number in range(6)]
GROUP = Group(organization_id=HOME, organization_user_group_id="g", group_name="G")
MEMBERS = [GroupMember(organization_id=HOME, organization_user_group_id="g", user_id=one.user_id) for one in PEOPLE]
FOLDERS = [Folder(organization_id=HOME, folder_id=name, folder_name=name) for name in ("f", "g")]


def document(number: int, folder: str | None) -> Document:
    return Document(organization_id=HOME, document_id=f"d{number}", document_name="D", folder_id=folder)


@pytest.mark.extended
@pytest.mark.parametrize("fault", [Fault.ITEMS_FAILED, Fault.ITEMS_FAILED_500])
@pytest.mark.parametrize("operation", ["delete_users_from_groups", "move_documents", "delete_folder"])
def test_failed_items_are_completed_by_a_later_run(any_world: FaultyWorld, operation: str, fault: Fault) -> None:
    any_world.begin(Company(Random(1), size=0))
    company = any_world.company
    company.add(*PEOPLE, GROUP, *MEMBERS, *FOLDERS, *(document(number, "f") for number in range(6)))
    assert any_world.sync().status == "done"
    if operation == "delete_users_from_groups":
        for record in (GROUP, *MEMBERS):
            del company.records[record.key]
    else:
        company.add(*(document(number, "g") for number in range(6)))
        if operation == "delete_folder":
            del company.records[FOLDERS[0].key]
    any_world.layer.script = {operation: [fault]}
    assert any_world.sync().status == "partial"
    assert any_world.layer.injected[fault] == 1
    assert differences(any_world)
    any_world.time.move_on(hours=7)
    assert any_world.sync().status == "done"
    assert not differences(any_world)
    assert not ledger_differences(any_world)
