"""The connector for HTTP APIs of identity providers."""
