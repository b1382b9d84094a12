"""`python -m workloads.bench [SHAPE/CONTEST ...] [bubble] [overlap] [repairable] [run]`: everything, or some parts."""

import sys

from workloads.bench.bench import main

if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
