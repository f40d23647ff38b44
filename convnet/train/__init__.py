"""Training: the loop, its extensions and learning-rate schedules."""
