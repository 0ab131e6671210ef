"""What the server of workers loads once, before the first of them: PyTorch takes seconds to load and no time to inherit.

Loaded by that server alone; importing it changes the process that does."""

from __future__ import annotations

import os
from contextlib import suppress

from shardmeter.lab.network import kernel

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before they are read; one thread a worker

kernel.call_process(kernel.title(os.getppid()))

with suppress(ImportError):  # tests of launching alone
    import torch
    import torch.distributed
    import torch.nn.functional

    torch.set_num_threads(1)
