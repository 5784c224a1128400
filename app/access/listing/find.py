"""The search in a list of access: decides the records that a text finds, also those that are not in it."""

from dataclasses import dataclass

from sqlalchemy import Connection

from app.access.decision.decide import DecisionPolicy, PlainQuestion, Rule, judge
from app.access.listing.batch_view import BatchView
from app.access.listing.page import AccessEntry, entry
from app.access.listing.resources import RESOURCE_TYPES, ResourceList
from app.access.listing.users import UserList
from app.access.records import User
from app.access.search import search


@dataclass(frozen=True, slots=True)
class FoundWithout:
    """A record that was found, and is not in the list."""

    kind: str
    item_id: str
    name: str
    rule: Rule


def find_in_list(
    connection: Connection, listed: ResourceList | UserList, policy: DecisionPolicy, text: str, limit: int
) -> tuple[list[AccessEntry], list[FoundWithout]]:
    """The first records that the text finds, up to a limit: those in the list, and those to which access is denied."""
    within = listed.organization_id
    if isinstance(listed, UserList):
        view = BatchView(connection, within)
        hits = search(connection, text, User.kind, limit)
        pairs = [(hit.item_id, listed.type, listed.resource_id) for hit in hits]
    else:
        view = BatchView(connection, within, user_id=listed.user_id)
        kinds = [kind for kind in RESOURCE_TYPES[1:] if kind in listed.types]
        hits = [hit for kind in kinds for hit in search(connection, text, kind, limit, organization_id=within)][:limit]
        pairs = [(listed.user_id, RESOURCE_TYPES[RESOURCE_TYPES.index(hit.kind)], hit.item_id) for hit in hits]
    view.load(
        {user_id for user_id, _, _ in pairs},
        folder_ids={item_id for _, kind, item_id in pairs if kind == "folder"},
        document_ids={item_id for _, kind, item_id in pairs if kind == "document"},
    )
    allowed: list[AccessEntry] = []
    without: list[FoundWithout] = []
    for hit, (user_id, kind, resource_id) in zip(hits, pairs, strict=True):
        question = PlainQuestion(user_id=user_id, type=kind, resource_id=resource_id, organization_id=within)
        decision = judge(view, question, listed.at, policy)
        if not decision.has_access:
            without.append(FoundWithout(hit.kind, hit.item_id, hit.label, decision.rule))
        elif listed.role in {None, decision.access_role}:
            allowed.append(entry(hit.kind, hit.item_id, hit.label, decision))
    return allowed, without
