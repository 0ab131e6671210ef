"""`plan`: out of the space of plans, which to run."""
