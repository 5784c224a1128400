"""Editor data: one Yjs document per editor."""
