"""The client of the backend.

``BackendClient.call`` (``client``) calls an operation of the contract. It raises refusals (``errors``), retries
temporary failures, and sends less while the backend throttles (both ``retry``). The rules are in
``app/sync/apply/README.md``, "Tries of one call" and "Outcomes". ``response`` reads responses, also those of a batch.
"""
