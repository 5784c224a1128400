"""Runs: their life cycle, the engine, the schedule, the lock and the workers."""
