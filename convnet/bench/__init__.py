"""`convnet bench`: how fast a machine trains, and what limits it."""
