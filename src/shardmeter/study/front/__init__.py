"""`front`: which parts of a fleet, in which sizes and at which prices, are the best for time and dollars together."""
