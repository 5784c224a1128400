"""The composition root: the one place where parts are made from the settings.

Everything else asks here for the parts that it works with, or is handed them. The self-hosted backend, which is a
program of its own, has its own in ``app/backend/serve.py``.
"""
