"""What holds for every test: examples are drawn without a clock, because a busy machine is no fault."""

from hypothesis import settings

settings.register_profile("steady", deadline=None)
settings.load_profile("steady")
