"""The collaboration backend's REST API as data.

The API as data: one table of operations (``operations``), one module of pydantic models per resource, error
statuses with their HTTP codes (``errors``), envelopes (``envelope``), limits (``limits``), header names (``headers``)
and the permission-provider call (``permission_call``). The client and the self-hosted backend are both built
from it, so nothing here knows either of them.
"""
