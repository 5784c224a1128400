"""The edge: what both HTTP servers share.

Strict reading of JSON bodies (`body`), fast JSON answers (`json`), error envelopes (`errors`), request ids and the
access log (`request_id`), security headers (`headers`), bearer tokens (`tokens`) and the gunicorn runner
(`gunicorn`).
"""
