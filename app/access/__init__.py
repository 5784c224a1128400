"""The access model and the decision: who may do what, and why."""
