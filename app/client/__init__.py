"""The client of the backend.

``BackendClient`` (``client``) has one typed method per operation of the contract's table (``methods``, generated) and
treats every answer by ``app/apply/README.md``, "Tries of one call" and "Outcomes": what is refused is raised as an
error that says so (``errors``), what may pass is tried again (``retry``), and throttling is met by sending less at a
time (``rate``). Batches are read item by item (``items``).
"""
