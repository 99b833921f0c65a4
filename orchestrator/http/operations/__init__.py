"""What the server tells of itself: models, health, metrics, the fleet, its description and pages."""
