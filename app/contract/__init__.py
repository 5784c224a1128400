"""The collaboration backend's REST API as data.

One table of operations (``operations``), one module of pydantic models per resource, error statuses with their HTTP
codes (``errors``), envelopes (``envelope``), limits (``limits``), header names (``headers``) and the
permission-provider call (``permission_call``). The client and the self-hosted backend both use it.
"""
