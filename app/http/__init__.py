"""HTTP servers: what the service and the self-hosted backend share. ``README.md`` lists the modules."""
