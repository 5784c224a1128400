"""Makes the comments and reactions of requests that add threads or comments."""

from collections.abc import Iterable, Mapping

from app.backend.collaboration import comments
from app.backend.collaboration.comments import Reaction, StoredComment
from app.backend.http.call import Call
from app.backend.ids import new_id
from app.backend.permissions.access_check import users_with_access
from app.backend.resources.containers import require_document
from app.contract.comments import AddCommentAnnotationsRequest, AddCommentsRequest, CommentInput
from app.foundation.database.engine import reading

NO_ACCESS = "User does not have access to the document."


def authors_with_access(
    call: Call[AddCommentAnnotationsRequest] | Call[AddCommentsRequest], requested: Iterable[CommentInput]
) -> frozenset[str] | None:
    """The authors with access to the document. None if the request does not verify permissions."""
    request, scope = call.request, call.scope
    if not request.verify_user_permissions:
        return None
    with reading(call.backend.engine) as connection:
        require_document(connection, scope, request.document_id)
    authors = [comment.from_.user_id for comment in requested]
    return users_with_access(call.backend, scope, request.document_id, authors, call.now)


def new_comments(
    call: Call[AddCommentAnnotationsRequest] | Call[AddCommentsRequest],
    annotation_id: str,
    requested: Mapping[str, CommentInput],
    first_number: int = 0,
) -> tuple[list[StoredComment], list[Reaction]]:
    """The new comments of a thread by id, and their reactions."""
    added: list[StoredComment] = []
    reactions: list[Reaction] = []
    for number, (comment_id, item) in enumerate(requested.items(), first_number):
        comment = StoredComment(annotation_id, comment_id, number, created_at=call.now, updated_at=call.now)
        comment.update(item)
        added.append(comment)
        for reaction in item.reactions or ():
            reaction_id = reaction.reaction_id or new_id(call.backend.entropy)
            reactions.append(comments.new_reaction(reaction, reaction_id, call.request.document_id, comment, call.now))
    return added, reactions


def comments_by_id(
    call: Call[AddCommentAnnotationsRequest] | Call[AddCommentsRequest], requested: Iterable[CommentInput]
) -> dict[str, CommentInput]:
    """The requested comments by id. The first of equal ids wins."""
    by_id: dict[str, CommentInput] = {}
    for comment in requested:
        by_id.setdefault(comment.comment_id or new_id(call.backend.entropy), comment)
    return by_id
