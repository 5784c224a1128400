"""Checks whether users have access to resources.

If the API key uses a permission provider, the provider decides. Otherwise ``app.access.decision.decide`` does, on the
backend's own data. No transaction is open during the call to the provider.
"""

from collections.abc import Iterable, Mapping, Sequence

import structlog

from app.access.decision.decide import DecisionPolicy, decide
from app.backend.http.call import Backend
from app.backend.permissions.own_data_view import OwnDataView
from app.backend.permissions.provider_call import DENIED, AccessVerdict, ask
from app.backend.permissions.provider_config import ProviderConfig, stored_config
from app.backend.scope import Scope
from app.contract.permission_call import Question
from app.foundation.clock import epoch_ms, from_epoch_ms
from app.foundation.database.engine import reading

_log = structlog.stdlib.get_logger(__name__)

_POLICY = DecisionPolicy(decision_ttl=0)
"""Without a maximum age of answers: ``expiresAt`` is the end of the access itself."""

QuestionKey = tuple[str, str, str]
Verdicts = Mapping[QuestionKey, AccessVerdict | None]
"""The verdicts by the key of the question. None: the provider did not answer. Questions about unknown resources are
absent."""


def check_access(
    backend: Backend, scope: Scope, questions: Sequence[Question], now: int
) -> tuple[Verdicts, OwnDataView]:
    """The verdicts on questions about resources of one organization at ``now`` (epoch milliseconds), and the backend's
    data about them. Must not be called within a transaction."""
    with reading(backend.engine) as connection:
        config = stored_config(connection, backend, scope.api_key_id)
        view = OwnDataView.load(connection, scope, questions, backend.settings.default_access_type, now)
    verdicts: dict[QuestionKey, AccessVerdict | None] = {}
    open_questions: list[Question] = []
    for question in questions:
        if not _exists(view, question):
            continue
        if question.type == "document" and question.resource_id in view.disabled_documents:
            verdicts[key_of(question)] = DENIED
        else:
            open_questions.append(question)
    organization = view.organization(scope.organization_id)
    # In a disabled organization, the backend itself denies all access. The provider cannot allow it.
    if config.in_use and organization is not None and not organization.disabled:
        verdicts |= _by_provider(backend, scope.api_key_id, config, open_questions)
    else:
        verdicts |= {key_of(question): _by_own_data(view, question, now) for question in open_questions}
    return verdicts, view


def users_with_access(
    backend: Backend, scope: Scope, document_id: str, user_ids: Iterable[str], now: int
) -> frozenset[str]:
    """The users who have access to the document: none if the provider does not answer."""
    questions = [
        Question(user_id, "document", document_id, scope.organization_id) for user_id in dict.fromkeys(user_ids)
    ]
    verdicts, _ = check_access(backend, scope, questions, now)
    return frozenset(key[0] for key, verdict in verdicts.items() if verdict is not None and verdict.has_access)


def key_of(question: Question) -> QuestionKey:
    """The key of a question. Questions themselves are not hashable, because of ``context``."""
    return (question.user_id, question.type, question.resource_id)


def _exists(view: OwnDataView, question: Question) -> bool:
    if question.organization_id not in view.organizations:
        return False
    if question.type == "folder":
        return question.resource_id in view.folders
    return question.type != "document" or question.resource_id in view.documents


def _by_provider(backend: Backend, api_key_id: str, config: ProviderConfig, questions: Sequence[Question]) -> Verdicts:
    if not config.url or not questions:
        return {key_of(question): None for question in questions}
    if not backend.provider_calls.acquire(blocking=False):
        _log.info("provider_not_asked", api_key=api_key_id)
        return {key_of(question): None for question in questions}
    try:
        verdicts = ask(config, backend.settings, questions, backend.session, backend.sleep)
    finally:
        backend.provider_calls.release()
    now = epoch_ms(backend.clock())
    return {
        key_of(question): _unless_expired(verdict, now) for question, verdict in zip(questions, verdicts, strict=True)
    }


def _unless_expired(verdict: AccessVerdict | None, now: int) -> AccessVerdict | None:
    if verdict is not None and verdict.expires_at is not None and verdict.expires_at <= now:
        return DENIED
    return verdict


def _by_own_data(view: OwnDataView, question: Question, now: int) -> AccessVerdict:
    decision = decide(view, question, from_epoch_ms(now), _POLICY)
    return AccessVerdict(
        decision.has_access,
        None if decision.access_role is None else decision.access_role.value,
        None if decision.expires_at is None else epoch_ms(decision.expires_at),
    )
