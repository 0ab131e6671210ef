"""`python -m shardmeter`: the command line without the script."""

import sys

from shardmeter.cli import main

if __name__ == "__main__":
    sys.exit(main())
