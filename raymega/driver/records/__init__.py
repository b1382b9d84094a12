"""What a run keeps on disk, and what can be said of it from there: no Ray, and the run need not be alive."""
