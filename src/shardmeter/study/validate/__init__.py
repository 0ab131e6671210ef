"""Comparing predictions with measured runs: reading files of runs, mapping their texts, scoring, bars."""
