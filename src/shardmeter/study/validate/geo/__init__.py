"""Measured rows between islands, predicted one kind a file: `predict_row(row)`, from what was known before."""
