"""Layer types: options, shape inference, forward and backward. One file a layer or a close family."""
