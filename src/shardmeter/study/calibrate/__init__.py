"""What a user's own runs and measurements say about the stack and the machine: a posterior, kept as rows of a user profile.

`observation` is what was measured; `profile` writes rows that `--catalog` reads.
"""
