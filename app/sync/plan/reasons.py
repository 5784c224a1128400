"""The reasons for deletes, as SQL over the access model.

``why_gone`` is part of the statement that finds deletes, so it is evaluated for those rows alone, by key. It is empty
if the reason of the rule (``app.sync.plan.rules``) is enough.
"""

from app.sync.ledger.items import CONTAINERS, USER_KINDS, Kind

_USER = """
    WHEN NOT EXISTS (SELECT 1 FROM model_user u WHERE u.user_id = l.item_id)
      THEN 'the user is no longer in the directory'
    WHEN EXISTS (SELECT 1 FROM model_user u WHERE u.user_id = l.item_id AND u.disabled)
      THEN 'the user is disabled in the directory'
    WHEN NOT EXISTS (SELECT 1 FROM model_organization a WHERE a.organization_id = l.organization_id)
      THEN 'the organization is no longer in the directory'"""

_GROUP = """
    WHEN NOT EXISTS (
      SELECT 1 FROM model_group g
      WHERE g.organization_id = l.organization_id AND g.organization_user_group_id = l.container_id)
      THEN 'the group is no longer in the directory'"""
_CONTAINER = """
    WHEN NOT EXISTS (
      SELECT 1 FROM {containers} c WHERE c.kind = '{container}' AND c.organization_id = l.organization_id
        AND c.container_id = '' AND c.item_id = l.container_id)
      THEN 'the {container} is no longer in the directory'"""

_EXPIRED_MEMBERSHIP = """(
    SELECT 'the membership expired on ' || @minute(m.expires_at)
    FROM model_membership m WHERE m.organization_id = l.organization_id AND m.user_id = l.item_id
      AND m.expires_at <= :now)"""

# The user's own grant comes first, as in decisions.
_EXPIRED_GRANT = """(
    SELECT 'the grant to the user expired on ' || @minute(g.expires_at)
    FROM model_grant g WHERE g.organization_id = l.organization_id AND g.folder_id = {folder}
      AND g.document_id = {document} AND g.user_id = l.item_id AND g.organization_user_group_id = ''
      AND g.expires_at <= :now), (
    SELECT 'the grant to group ' || g.organization_user_group_id || ' expired on '
      || @minute(g.expires_at)
    FROM model_grant g CROSS JOIN desired m
    WHERE g.organization_id = l.organization_id AND g.folder_id = {folder} AND g.document_id = {document}
      AND g.user_id = '' AND g.expires_at <= :now
      AND m.kind = 'groupMember' AND m.organization_id = g.organization_id
      AND m.container_id = g.organization_user_group_id AND m.item_id = l.item_id
    ORDER BY g.expires_at DESC, g.organization_user_group_id LIMIT 1)"""


def why_gone(kind: Kind, containers: str) -> str:
    """The expression for an item ``l`` of the ledger that is not desired. It uses the parameter ``now``.

    ``containers``: the table with the effective folders and documents (``app.sync.plan.desired.containers``)."""
    if kind not in USER_KINDS:
        return "''"
    cases = _USER
    expired = _EXPIRED_MEMBERSHIP if kind is Kind.ORGANIZATION_USER else "NULL"
    container = CONTAINERS.get(kind)
    if container is Kind.GROUP:
        cases += _GROUP
    elif container is not None:
        cases += _CONTAINER.format(containers=containers, container=container.value)
        in_folder = container is Kind.FOLDER
        expired = _EXPIRED_GRANT.format(
            folder="l.container_id" if in_folder else "''", document="''" if in_folder else "l.container_id"
        )
    return f"CASE {cases} ELSE COALESCE({expired}, '') END"
