"""What operators and their programs ask of the service: runs, health, readiness, metrics."""
