"""Several ranks: who they are, what they say to each other, and how their arrays move."""
