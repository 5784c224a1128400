"""The composition root: builds every part from the settings.

No other package creates these parts. The self-hosted backend is a separate program and is built in
``app/backend/serve.py``.
"""
