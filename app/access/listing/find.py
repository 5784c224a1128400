"""The search in a list of access: decides the records that a text finds, also those that are not in it."""

from dataclasses import dataclass

from sqlalchemy import Connection

from app.access.decision.decide import DecisionPolicy, PlainQuestion, Rule, judge
from app.access.listing.batch_view import BatchView
from app.access.listing.page import AccessEntry, entry
from app.access.listing.resources import RESOURCE_TYPES, ResourceList
from app.access.listing.users import UserList
from app.access.records import ResourceKind, User
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
        found = [
            (hit, _question(within, hit.item_id, listed.type, listed.resource_id))
            for hit in search(connection, text, User.kind, limit)
        ]
    else:
        view = BatchView(connection, within, user_id=listed.user_id)
        found = [
            (hit, _question(within, listed.user_id, kind, hit.item_id))
            for kind in RESOURCE_TYPES[1:]
            if kind in listed.types
            for hit in search(connection, text, kind, limit, organization_id=within)
        ][:limit]
    questions = [question for _, question in found]
    view.load(
        {question.user_id for question in questions},
        folder_ids={question.resource_id for question in questions if question.type == "folder"},
        document_ids={question.resource_id for question in questions if question.type == "document"},
    )
    allowed: list[AccessEntry] = []
    without: list[FoundWithout] = []
    for hit, question in found:
        decision = judge(view, question, listed.at, policy)
        if not decision.has_access:
            without.append(FoundWithout(hit.kind, hit.item_id, hit.label, decision.rule))
        elif listed.role in {None, decision.access_role}:
            allowed.append(entry(hit.kind, hit.item_id, hit.label, decision))
    return allowed, without


def _question(within: str, user_id: str, kind: ResourceKind, resource_id: str) -> PlainQuestion:
    return PlainQuestion(user_id=user_id, type=kind, resource_id=resource_id, organization_id=within)
