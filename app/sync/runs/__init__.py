"""The runs of the synchronization: their life cycle, the engine, the schedule, the lock and the workers."""
