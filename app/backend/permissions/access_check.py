"""The check of access: may these users see these resources?

The permission provider's word when one is in use; without one, ``access.decide`` judges by the backend's own data. No
transaction is held while the provider thinks.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import structlog

from app.access.decision.decide import Check, Decision, DecisionPolicy, decide
from app.backend.http.call import Backend
from app.backend.permissions.own_data_view import OwnDataView
from app.backend.permissions.provider_call import Provider, ProviderVerdict, ask
from app.backend.permissions.provider_config import ProviderConfig, stored_config
from app.backend.scope import Scope
from app.contract.permission_call import RequestEntry
from app.foundation.clock import epoch_ms
from app.foundation.database.engine import reading

_POLICY = DecisionPolicy(decision_ttl=0)
"""The rules without a cap on answers: ``expiresAt`` tells when access itself ends."""

Key = tuple[str, str, str]
Judged = Mapping[Key, ProviderVerdict | None]
"""By the key of the question: the verdict, None where the provider gave none. What is not known here is left out."""


def judge(backend: Backend, scope: Scope, questions: Sequence[RequestEntry], now: int) -> tuple[Judged, OwnDataView]:
    """The verdicts on questions about resources of one organization, and what the backend itself knows of them.

    ``now`` is epoch milliseconds. Must not be called within a transaction.
    """
    with reading(backend.engine) as connection:
        config = stored_config(connection, backend, scope.api_key_id)
        view = OwnDataView.load(
            connection,
            scope,
            user_ids=dict.fromkeys(question.user_id for question in questions),
            folder_ids=_ids(questions, "folder"),
            document_ids=_ids(questions, "document"),
            default_access_type=backend.settings.default_access_type,
            now=now,
        )
    organization = view.organization(scope.organization_id)
    known = [question for question in questions if _is_known(view, question)]
    closed = [question for question in known if _is_closed(view, question)]
    judged: dict[Key, ProviderVerdict | None] = {
        key_of(question): ProviderVerdict(has_access=False) for question in closed
    }
    open_ = [question for question in known if key_of(question) not in judged]
    if config.in_use and organization is not None and not organization.disabled:
        judged |= _by_provider(backend, scope.api_key_id, config, open_)
    else:
        judged |= {key_of(question): _by_own_data(view, question, now) for question in open_}
    return judged, view


def users_with_access(
    backend: Backend, scope: Scope, document_id: str, user_ids: Iterable[str], now: int
) -> frozenset[str]:
    """Those of the users who have access to the document. A provider that gives no answer lets nobody in."""
    questions = [
        RequestEntry(user_id, "document", document_id, scope.organization_id) for user_id in dict.fromkeys(user_ids)
    ]
    judged, _ = judge(backend, scope, questions, now)
    return frozenset(key[0] for key, verdict in judged.items() if verdict is not None and verdict.has_access)


def key_of(question: RequestEntry) -> Key:
    """A question as a key (its own hash would stumble over the context)."""
    return (question.user_id, question.type, question.resource_id)


def _ids(questions: Iterable[RequestEntry], kind: str) -> Iterable[str]:
    return dict.fromkeys(question.resource_id for question in questions if question.type == kind)


def _is_known(view: OwnDataView, question: RequestEntry) -> bool:
    if view.organization(question.organization_id) is None:
        return False
    if question.type == "folder":
        return question.resource_id in view.folders
    if question.type == "document":
        return view.document(question.organization_id, question.resource_id) is not None
    return True


def _is_closed(view: OwnDataView, question: RequestEntry) -> bool:
    """A disabled document lets nobody in, whoever would judge otherwise."""
    return question.type == "document" and question.resource_id in view.disabled_documents


def _by_provider(
    backend: Backend, api_key_id: str, config: ProviderConfig, questions: Sequence[RequestEntry]
) -> Judged:
    settings = backend.settings
    if not config.url or not questions:
        return {key_of(question): None for question in questions}
    provider = Provider(
        url=config.url,
        auth_token=config.auth_token,
        timeout=settings.provider_timeout,
        tries=settings.provider_tries,
        pause=settings.provider_pause,
        deadline=settings.provider_deadline,
    )
    with backend.providers.turn(api_key_id, config.url) as may_ask:
        if not may_ask:
            structlog.stdlib.get_logger(__name__).info("provider_not_asked", api_key=api_key_id)
            return {key_of(question): None for question in questions}
        on_silence = partial(backend.providers.note_silence, api_key_id, config.url)
        verdicts = ask(provider, questions, backend.session, backend.sleep, on_silence)
    now = epoch_ms(backend.clock())
    return {key_of(question): _unless_over(verdict, now) for question, verdict in zip(questions, verdicts, strict=True)}


def _unless_over(verdict: ProviderVerdict | None, now: int) -> ProviderVerdict | None:
    """An allow that has ended by the time it arrives is none."""
    if verdict is not None and verdict.expires_at is not None and verdict.expires_at <= now:
        return ProviderVerdict(has_access=False)
    return verdict


def _by_own_data(view: OwnDataView, question: RequestEntry, now: int) -> ProviderVerdict:
    asked = Check(
        user_id=question.user_id,
        type=question.type,
        resource_id=question.resource_id,
        organization_id=question.organization_id,
    )
    decision: Decision = decide(view, asked, datetime.fromtimestamp(now / 1000, UTC), _POLICY)
    return ProviderVerdict(
        decision.has_access,
        None if decision.access_role is None else decision.access_role.value,
        None if decision.expires_at is None else epoch_ms(decision.expires_at),
    )
