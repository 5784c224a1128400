"""Searches in a list of access. Decides the records that a text finds, also those that are not in the list."""

from dataclasses import dataclass

from sqlalchemy import Connection

from app.access.decision.decide import DecisionPolicy, PlainQuestion, Rule, decide_uncapped
from app.access.listing.batch_view import BatchView
from app.access.listing.page import AccessEntry, entry
from app.access.listing.resources import ResourceList
from app.access.listing.users import UserList
from app.access.records import ResourceKind, User
from app.access.search import search


@dataclass(frozen=True, slots=True)
class DeniedHit:
    """A record that the search found, and to which access is denied."""

    kind: str
    item_id: str
    name: str
    rule: Rule


def find_in_list(
    connection: Connection, access_list: ResourceList | UserList, policy: DecisionPolicy, text: str, limit: int
) -> tuple[list[AccessEntry], list[DeniedHit]]:
    """The first records that the text finds, up to a limit: those in the list, and those to which access is denied."""
    within = access_list.organization_id
    if isinstance(access_list, UserList):
        view = BatchView(connection, within)
        hits = [
            (hit, _question(within, hit.item_id, access_list.type, access_list.resource_id))
            for hit in search(connection, text, User.kind, limit)
        ]
    else:
        view = BatchView(connection, within, user_id=access_list.user_id)
        hits = [
            (hit, _question(within, access_list.user_id, kind, hit.item_id))
            for kind in ("folder", "document")
            if kind in access_list.types
            for hit in search(connection, text, kind, limit, organization_id=within)
        ][:limit]
    questions = [question for _, question in hits]
    view.load(
        {question.user_id for question in questions},
        folder_ids={question.resource_id for question in questions if question.type == "folder"},
        document_ids={question.resource_id for question in questions if question.type == "document"},
    )
    allowed: list[AccessEntry] = []
    denied: list[DeniedHit] = []
    for hit, question in hits:
        decision = decide_uncapped(view, question, access_list.at, policy)
        if not decision.has_access:
            denied.append(DeniedHit(hit.kind, hit.item_id, hit.label, decision.rule))
        elif access_list.role in {None, decision.access_role}:
            allowed.append(entry(hit.kind, hit.item_id, hit.label, decision))
    return allowed, denied


def _question(within: str, user_id: str, kind: ResourceKind, resource_id: str) -> PlainQuestion:
    return PlainQuestion(user_id=user_id, type=kind, resource_id=resource_id, organization_id=within)
