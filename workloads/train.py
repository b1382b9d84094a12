"""Train what a config says, as the entry point of a Ray job: the same as `raymega train`, and needs no address.

ray job submit --working-dir . -- python workloads/train.py CONFIG [--set KEY=VALUE ..] [--resume auto|STEP|none]
"""

from raymega.job.start import main

if __name__ == "__main__":
    main()
