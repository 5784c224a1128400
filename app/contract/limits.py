"""Limits and defaults of requests: those of the API's reference, and our own where it has none.

A request that exceeds one gets INVALID_ARGUMENT with the field's name. Lengths are in characters unless the name
contains bytes. An empty list is accepted: an empty batch changes nothing, and an empty list of ids on a read selects
nothing. The reference makes exceptions for ``filterTypes`` and ``channels``.
"""

from app.foundation.ids import MAX_ID_BYTES

# Stated by the reference.
TOKEN_LIFETIME_SECONDS = 48 * 60 * 60
"""Lifetime of a generated JWT."""
IDS_PER_READ = 30
"""Ids in Get Organizations v1, Get Users and Get Documents."""
PAGE_SIZE_MIN = 1
PAGE_SIZE_DEFAULT = 1000
"""Rows of one page."""
USER_DATA_PAGE = 100
"""Items per feature and page of Get All User Data."""
JUDGMENT_LIMIT_MAX = 50
JUDGMENT_LIMIT_DEFAULT = 10
RECENCY_DAYS_MAX = 365
WORKSPACE_NAME_LENGTH = 200
AVATAR_LENGTH = 2000
WORKSPACES_PER_EMAIL = 5

# Stated by the reference of the extended operations.
MOVE_DOCUMENTS = 30
"""Documents of one Move Documents."""
DOMAINS_PER_CALL = 100
ENDPOINTS_PER_PAGE_MAX = 250
ENDPOINTS_PER_PAGE_DEFAULT = 50
JUDGMENT_QUERY_LIMIT_MAX = 100
JUDGMENT_QUERY_LIMIT_DEFAULT = 20
CONTEXT_ITEMS = 200
"""Values in one context question of the permission-provider call."""

# Our own: the reference has none.
PAGE_SIZE_MAX = 1000
"""Rows of one page. A larger ``pageSize`` is accepted, as in the reference, and returns this many."""
PERMISSION_QUESTIONS = 3000
"""Questions of one Get Permissions: users times resources."""
BATCH_ITEMS = 1000
"""Items of one batch (``users``, ``documents``, ``folders``, ``userIds``, ...)."""
ID_LENGTH = ID_BYTES = MAX_ID_BYTES
TEXT_LENGTH = 10_000
"""Names, titles, templates, keys."""
LONG_TEXT_LENGTH = 100_000
"""Texts of comments and judgments."""
URL_LENGTH = 2000
EMAIL_LENGTH = 320
PAGE_TOKEN_LENGTH = 32_768
"""A token of Get All User Data contains five positions, with ids of any characters, escaped twice."""
EPOCH_SECONDS_MAX = 253_402_300_799
"""The last second of the year 9999."""
EPOCH_MS_MAX = EPOCH_SECONDS_MAX * 1000 + 999
FOLDER_DEPTH_MAX = 1000
"""Levels of folders."""
API_KEYS_PER_WORKSPACE = 100
"""API keys of a workspace, of both types."""
DOMAINS_PER_KEY = 1000
"""Domains of an API key."""
ENDPOINT_RATE_MAX = 1_000_000
"""Deliveries per second."""
METADATA_BYTES = 64 * 1024
"""Undeclared fields of one item of a request, as JSON."""
STORED_METADATA_BYTES = 256 * 1024
"""Stored metadata of one item after an update, with names."""
EDITOR_DATA_BYTES = 4 * 1024 * 1024
"""``data`` of an editor, as JSON."""
EDITOR_VALUES = 50_000
"""Values in a map or array of an editor, at any depth."""
EDITOR_XML_NODES = 10_000
"""Elements, texts and attributes of an editor's XML."""
EDITOR_XML_LEVELS = 64
"""Levels of an editor's XML."""
WEBHOOK_TRIGGERS = 200
"""Triggers of basic webhooks, after an update."""
