"""The HTTP API of operators: runs, health, readiness, metrics, and the OpenAPI document."""
