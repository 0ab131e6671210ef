"""What holds for every test: examples are drawn without a clock, because a busy machine is no fault, and always the same ones.

HYPOTHESIS_PROFILE=search make test    draws others each time, to find what the usual ones miss
"""

import gc
import json
import os
import signal
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

os.environ.pop("COLUMNS", None)  # pages as wide as in a pipe, whoever runs the tests
if (
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN
):  # run in the background of a shell, which commands started here would inherit
    signal.signal(signal.SIGINT, signal.default_int_handler)


gc.disable()  # what is collected stays to the end: eleven thousand tests


def pytest_collection_finish() -> None:
    """Garbage is looked for again, among what tests make themselves."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def shipped_report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `validate` says of the rows that ship: half a minute, once for all who ask, in whichever worker."""
    from shardmeter.study.validate import validate

    shared = tmp_path_factory.getbasetemp().parent / "shipped-report.json"
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return validate().to_dict()
    if not shared.exists():
        own = shared.with_suffix(f".{os.getpid()}")
        own.write_text(json.dumps(validate().to_dict()), encoding="utf-8")
        own.replace(shared)
    report: dict[str, Any] = json.loads(shared.read_text(encoding="utf-8"))
    return report
