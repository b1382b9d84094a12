"""`python -m workloads.bench [SHAPE/CONTEST ...] [bubble] [repairable] [run]`: everything, or the parts named."""

import sys

from workloads.bench.bench import main

if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
