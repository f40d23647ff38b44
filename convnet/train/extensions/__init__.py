"""Extensions of the training loop: rates, watch, evaluation, log, progress bar, checkpoint."""
