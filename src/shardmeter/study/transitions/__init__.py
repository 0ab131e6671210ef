"""`transitions`: what rules a step at every point of one or two axes of a scenario, and where that changes."""
