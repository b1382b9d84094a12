"""What a Ray job runs: `python -m raymega.job CONFIG`, or `workloads/train.py CONFIG` from a checkout."""
