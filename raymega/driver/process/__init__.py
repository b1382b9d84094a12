"""A process of a run by itself: threads whose end is known, what is loaded late, what becomes of its output."""
