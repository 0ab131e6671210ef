"""Training over several buildings: placement, schedule and network chosen together."""
