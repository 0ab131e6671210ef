"""What holds for every test: examples are drawn without a clock, because a busy machine is no fault, and always the same ones.

HYPOTHESIS_PROFILE=search make test    draws others each time, to find what the usual ones miss
"""

import os
import signal

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

os.environ.pop("COLUMNS", None)  # pages as wide as in a pipe, whoever runs the tests
if (
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):  # run in the background of a shell, which commands started here would inherit
    signal.signal(signal.SIGINT, signal.default_int_handler)
