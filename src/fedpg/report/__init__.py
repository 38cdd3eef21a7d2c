"""Results for people: statistics over seeds, and pictures."""
