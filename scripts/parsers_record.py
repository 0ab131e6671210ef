"""Write tests/parsers/recorded.json: what every real parser says of every export. `--check NAME…`: of these checks only."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys

from parsers_checks import RECORDED, asked, checks


def main() -> None:
    """Ask, write, and end with 1 where something was refused."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", nargs="*", default=[])
    only = options.parse_args().check
    record = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    for name, check in checks().items():
        if only and name not in only:
            continue
        one = record[name] = {"date": today, **asked(name, check)}
        typos = len(one["typos_refused"]), len(one["typos_silent"])
        print(
            f"{name}: {one['parser']}: {len(one['accepted'])} plans accepted, {len(one['refused'])} refused, ", end=""
        )
        print(f"{len(one['inexpressible'])} not expressible; of {sum(typos)} misspelt names {typos[0]} refused")
        for plan, against in one["refused"].items():
            print(f"  {plan}: {against}", file=sys.stderr)
    RECORDED.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n", encoding="utf-8")
    sys.exit(any(one["refused"] for one in record.values()))


if __name__ == "__main__":
    main()
