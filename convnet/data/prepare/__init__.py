"""Datasets made ready for training: images scaled once, in tar shards, class folders or an array of pixels."""
