"""What the machine charges: pure formulas over plain numbers. A price never knows a strategy.

Every function here is a `@formula`: registered, cited, dimension-tested, and recorded when a trace is open.
"""
