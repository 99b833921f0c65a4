"""The orchestrator's metrics: read from what its parts count anyway, when somebody asks."""
