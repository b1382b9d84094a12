"""`python -m raymega.job CONFIG`."""

from raymega.job.start import main

main()
