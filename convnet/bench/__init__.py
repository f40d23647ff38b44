"""`convnet bench`: how fast parts of training are on a machine, and what limits them."""
