"""The client of the backend.

``BackendClient.call`` (``client``) calls an operation of the contract. It raises refusals (``errors``), retries
temporary failures (``retry``), and sends less while the backend throttles (``rate``). The rules are in
``app/sync/apply/README.md``, "Tries of one call" and "Outcomes". ``items`` reads the results of a batch.
"""
