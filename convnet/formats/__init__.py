"""Files of other tools: weights and networks that come from there, and ours for them."""
