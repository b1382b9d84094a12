"""Ray and its nodes: where Ray comes from, which nodes there are, which are to go, how many a run may have."""
