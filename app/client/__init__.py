"""The client of the backend.

``BackendClient.call`` (``client``) calls an operation of the contract's table and handles the answer as
``app/sync/apply/README.md`` describes in "Tries of one call" and "Outcomes": it raises refusals (``errors``), retries
temporary failures (``retry``), and sends less when the backend throttles (``rate``). ``items`` reads the results of a
batch.
"""
