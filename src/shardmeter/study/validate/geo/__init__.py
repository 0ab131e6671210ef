"""Rows of runs across islands: what their texts mean, which of them are predicted by what, and how they are scored."""
