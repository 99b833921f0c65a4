"""What the server says of itself: models, health, metrics, the fleet, its description and pages."""
