"""The oracle of *hide*: a discrete-event run of the same demands at the same prices, one rank per pipeline stage."""
