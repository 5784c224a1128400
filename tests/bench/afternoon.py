"""The permission service that one would write in an afternoon: a Flask route, and SQLModel queries for each record.

It has roles, the nearest level, groups in groups and access types. It has no expiry, reasons, limits, checks of the
request or metrics. Served like the service: ``python -m tests.bench.afternoon PORT THREADS DATABASE_URL``.
"""

import sys
from typing import Any

from flask import Flask, Response, abort, jsonify, request
from sqlmodel import Field, Session, SQLModel, select

from app.foundation.database.engine import open_engine
from app.http.gunicorn import ServerOptions, serve
from tests.bench.provider import PATH, TOKEN


class Organization(SQLModel, table=True):
    """An organization."""

    __tablename__ = "model_organization"
    organization_id: str = Field(primary_key=True)
    access_type: str
    disabled: bool


class User(SQLModel, table=True):
    """A user."""

    __tablename__ = "model_user"
    user_id: str = Field(primary_key=True)
    disabled: bool


class Membership(SQLModel, table=True):
    """A member of an organization."""

    __tablename__ = "model_membership"
    organization_id: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    access_role: str


class GroupMember(SQLModel, table=True):
    """A user or a group in a group."""

    __tablename__ = "model_group_member"
    organization_id: str = Field(primary_key=True)
    organization_user_group_id: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    member_group_id: str = Field(primary_key=True)


class Folder(SQLModel, table=True):
    """A folder."""

    __tablename__ = "model_folder"
    organization_id: str = Field(primary_key=True)
    folder_id: str = Field(primary_key=True)
    parent_folder_id: str
    access_type: str


class Document(SQLModel, table=True):
    """A document."""

    __tablename__ = "model_document"
    organization_id: str = Field(primary_key=True)
    document_id: str = Field(primary_key=True)
    folder_id: str
    access_type: str


class Grant(SQLModel, table=True):
    """Access of a user or a group to a folder or a document."""

    __tablename__ = "model_grant"
    organization_id: str = Field(primary_key=True)
    folder_id: str = Field(primary_key=True)
    document_id: str = Field(primary_key=True)
    user_id: str = Field(primary_key=True)
    organization_user_group_id: str = Field(primary_key=True)
    access_role: str


def find_role(session: Session, organization_id: str, user_id: str, document_id: str, groups: set[str]) -> str | None:
    """The role of the user, who is in these groups, on the document. None: no access."""
    organization = session.get(Organization, organization_id)
    user = session.get(User, user_id)
    document = session.get(Document, (organization_id, document_id))
    if not organization or organization.disabled or not user or user.disabled or not document:
        return None
    access_type = document.access_type
    level, above = {"document_id": document_id, "folder_id": ""}, document.folder_id
    while True:
        role = find_grant(session, organization_id, user_id, groups, level)
        if role:
            return role
        if not above:
            break
        folder = session.get(Folder, (organization_id, above))
        if not folder:
            return None
        access_type = access_type or folder.access_type
        level, above = {"document_id": "", "folder_id": above}, folder.parent_folder_id
    member = session.get(Membership, (organization_id, user_id))
    if (access_type or organization.access_type) == "restricted" or not member:
        return None
    return member.access_role


def find_groups(session: Session, organization_id: str, user_id: str) -> set[str]:
    """The groups of the user, and the groups that contain them."""
    found: set[str] = set()
    of_organization = select(GroupMember.organization_user_group_id).filter_by(organization_id=organization_id)
    waiting = list(session.exec(of_organization.filter_by(user_id=user_id)))
    while waiting:
        group = waiting.pop()
        if group not in found:
            found.add(group)
            waiting += session.exec(of_organization.filter_by(member_group_id=group))
    return found


def find_grant(
    session: Session, organization_id: str, user_id: str, groups: set[str], level: dict[str, str]
) -> str | None:
    """The role by a grant on exactly this folder or document. The user's own grant comes first."""
    on_level = select(Grant.access_role).filter_by(organization_id=organization_id, **level)
    own = session.exec(on_level.filter_by(user_id=user_id)).first()
    if own:
        return own
    of_groups = on_level.filter_by(user_id="").where(Grant.organization_user_group_id.in_(groups))  # type: ignore[attr-defined]  # a column
    return min(session.exec(of_groups), default=None)


def create_afternoon(database_url: str) -> Flask:
    """The app."""
    app = Flask("afternoon")
    engine = open_engine(database_url)

    @app.post(PATH)
    def check() -> Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            abort(401)
        results: list[dict[str, Any]] = []
        groups: dict[tuple[str, str], set[str]] = {}
        with Session(engine) as session:
            for one in request.get_json()["data"]["requests"]:
                resource = one["resource"]
                pair = (resource["organizationId"], one["userId"])
                if pair not in groups:
                    groups[pair] = find_groups(session, *pair)
                role = find_role(session, *pair, resource["id"], groups[pair])
                results.append(
                    {
                        "userId": one["userId"],
                        "resourceId": resource["id"],
                        "type": resource["type"],
                        "organizationId": resource["organizationId"],
                        "hasAccess": role is not None,
                        **({"accessRole": role} if role else {}),
                    }
                )
        return jsonify({"data": results})

    @app.get("/healthz")
    def health() -> str:
        return "ok"

    return app


if __name__ == "__main__":
    port, threads, url = sys.argv[1:]
    serve(
        lambda: create_afternoon(url), ServerOptions(port=int(port), workers=1, threads=int(threads), name="afternoon")
    )
