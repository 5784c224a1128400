"""Connectors: what reads a directory in its own terms, one module or package each.

They alone may know the world that they read (databases, wires, their libraries); what they give is what
``app.directory.connector`` and ``app.directory.source`` say.
"""
