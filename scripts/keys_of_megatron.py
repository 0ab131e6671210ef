"""Write the names of Megatron-LM's options, one a line, as its own parser has them.

    python scripts/keys_of_megatron.py CHECKOUT VERSION

CHECKOUT is a working tree of github.com/NVIDIA/Megatron-LM; VERSION is what the list is called: the branch of a release, or the month
of a snapshot. Run it with a Python that has torch, numpy, triton, regex, pyyaml and pydantic; ShardMeter need not be there.
Shipped: core_r0.16 (ddc0d67747, 2026-04-17), core_r0.18 (dc0ee41ada, 2026-08-17), 2026-08 (main, d98e8a64dd, 2026-08-22).
"""

from __future__ import annotations

import argparse
import sys
import typing
from pathlib import Path

KEYS = Path(__file__).parents[1] / "src" / "shardmeter" / "data" / "keys"


def option_names(checkout: str) -> list[str]:
    """The options of the parser of a checkout, sorted."""
    if not hasattr(typing, "override"):  # Python 3.11
        typing.override = lambda method: method  # type: ignore[attr-defined]
    sys.path.insert(0, checkout)
    from megatron.training.arguments import add_megatron_arguments

    parser = add_megatron_arguments(argparse.ArgumentParser(add_help=False, allow_abbrev=False))
    return sorted({name for action in parser._actions for name in action.option_strings})  # noqa: SLF001  (argparse has no other way)


def main() -> None:
    """Write the list that the command line names."""
    checkout, version = sys.argv[1:]
    names = option_names(checkout)
    KEYS.mkdir(exist_ok=True)
    (KEYS / f"megatron-{version}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    print(f"{len(names)} options")


if __name__ == "__main__":
    main()
