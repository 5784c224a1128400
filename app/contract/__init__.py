"""The collaboration backend's REST API as data.

The table of operations (``operations``), one module of pydantic models per resource, errors with their HTTP codes
(``errors``), limits (``limits``) and the permission-provider call (``permission_call``).
The client and the self-hosted backend both use it.
"""
