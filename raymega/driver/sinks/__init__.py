"""Where a run's figures go while it trains: terminal, Prometheus, TensorBoard, trackers."""
