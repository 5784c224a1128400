"""Who may do what: given and taken, answered from own data or by the configured permission provider."""
