"""The bottom layer: units, quantities, formulas, records, errors. Knows nothing about training."""
