"""Fitting the few numbers of a stack to measured rows: deterministic, bounded, with priors.

`batch` evaluates many unlike rows in few array calls; `stacks` fits; `leave_out` predicts every source without itself.
"""
