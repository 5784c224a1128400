"""The permission provider: answers permission requests of the backend from the access model."""
