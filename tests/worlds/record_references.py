"""The references of a record, written by hand to compare with those that ``app.access.kinds`` derives."""

from app.access.records import (
    ContextGrant,
    Document,
    Fill,
    Folder,
    Grant,
    GroupMember,
    Key,
    Membership,
    Organization,
    Record,
    User,
)


def references(record: Record) -> set[Key]:
    """The keys of the records that this one depends on."""
    if isinstance(record, Organization | User):
        return set()
    if isinstance(record, Fill):
        return set() if record.user_id is None else {("user", record.user_id)}
    organization = record.organization_id
    found: set[Key] = {("organization", organization)}
    if isinstance(record, Membership | GroupMember | Grant | ContextGrant) and record.user_id is not None:
        found.add(("user", record.user_id))
    if isinstance(record, GroupMember | Grant | ContextGrant) and record.organization_user_group_id is not None:
        found.add(("group", organization, record.organization_user_group_id))
    if isinstance(record, GroupMember) and record.member_group_id is not None:
        found.add(("group", organization, record.member_group_id))
    if isinstance(record, Document | Grant) and record.folder_id is not None:
        found.add(("folder", organization, record.folder_id))
    if isinstance(record, Folder) and record.parent_folder_id is not None:
        found.add(("folder", organization, record.parent_folder_id))
    if isinstance(record, Grant | ContextGrant) and record.document_id is not None:
        found.add(("document", organization, record.document_id))
    return found
