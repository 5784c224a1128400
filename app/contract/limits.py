"""Limits of requests.

The limits of the reference, and our own for what it leaves open. A request that exceeds one gets INVALID_ARGUMENT
with the field's name. Lengths are in characters unless the name contains bytes.

An empty list is within every limit: an empty batch changes nothing, and an empty list of ids on a read
selects nothing. The exceptions (``filterTypes``, ``channels``) are the reference's.
"""

# Stated by the reference.
TOKEN_LIFETIME_SECONDS = 48 * 60 * 60
"""Lifetime of a generated JWT."""
IDS_PER_READ = 30
"""``organizationIds`` of Get Organizations v1; ``userIds`` and ``organizationUserGroupIds`` of Get Users; ids of
Get Documents."""
PAGE_SIZE_DEFAULT = 1000
PAGE_SIZE_MIN = 1
USER_DATA_PAGE = 100
"""Items per feature and page of Get All User Data."""
JUDGMENT_LIMIT_MAX = 50
JUDGMENT_LIMIT_DEFAULT = 10
RECENCY_DAYS_MAX = 365
WORKSPACE_NAME_LENGTH = 200
AVATAR_LENGTH = 2000
WORKSPACES_PER_EMAIL = 5

# Stated for the extended operations.
MOVE_DOCUMENTS = 30
DOMAINS_PER_CALL = 100
ENDPOINTS_PER_PAGE_MAX = 250
ENDPOINTS_PER_PAGE_DEFAULT = 50
JUDGMENT_QUERY_LIMIT_MAX = 100
JUDGMENT_QUERY_LIMIT_DEFAULT = 20
CONTEXT_ITEMS = 200
"""Values that one context question of the permission-provider call may carry."""

# Our own: the reference has none.
PAGE_SIZE_MAX = 1000
"""Rows of one page. A larger ``pageSize`` is accepted, as in the reference, and returns this many."""
PERMISSION_QUESTIONS = 3000
"""What one Get Permissions may ask: each user about the organization and every folder and document named."""
BATCH_ITEMS = 1000
"""Items of one batch (``users``, ``documents``, ``folders``, ``userIds``, ...)."""
ID_LENGTH = 512
ID_BYTES = 512
"""Ids are opaque and may hold slashes, quotes, spaces and emoji. Measured in UTF-8 so that a key made of four
of them still fits a database's index entry (2,704 bytes in PostgreSQL)."""
TEXT_LENGTH = 10_000
"""Names, titles, templates, keys."""
LONG_TEXT_LENGTH = 100_000
"""Bodies of comments."""
URL_LENGTH = 2000
EMAIL_LENGTH = 320
PAGE_TOKEN_LENGTH = 32_768
"""Get All User Data keeps the place of five kinds of data in one, with ids of any characters, escaped twice."""
NESTING = 64
"""Levels of objects and arrays in what is stored; a request body may have fewer (``app.edge.strict_json``)."""
EPOCH_SECONDS_MAX = 253_402_300_799
"""The last second of the year 9999."""
EPOCH_MS_MAX = EPOCH_SECONDS_MAX * 1000 + 999
FOLDER_DEPTH_MAX = 1000
API_KEYS_PER_WORKSPACE = 100
"""API keys of a workspace, of both types. Each key is a separate tenant."""
DOMAINS_PER_KEY = 1000
"""Domains of an API key."""
ENDPOINT_RATE_MAX = 1_000_000
METADATA_BYTES = 64 * 1024
"""What one item of a request may bring along in fields that nobody declared, as JSON."""
METADATA_BYTES_ALTOGETHER = 256 * 1024
"""Limit after updates, with names."""
EDITOR_DATA_BYTES = 4 * 1024 * 1024
"""``data`` of an editor, as JSON."""
EDITOR_VALUES = 50_000
"""Values in a map or array of an editor, those within others included."""
EDITOR_XML_NODES = 10_000
"""Elements, texts and attributes of an editor's XML."""
WEBHOOK_TRIGGERS = 200
"""Triggers of basic webhooks, those of earlier updates included."""
