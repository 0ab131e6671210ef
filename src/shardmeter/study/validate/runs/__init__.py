"""Whole training runs: accelerator-hours of a row, predicted from what was known before the run."""
