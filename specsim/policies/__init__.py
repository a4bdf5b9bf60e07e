"""What to draft, how much of it to verify, and what to learn from it. Imports neither the simulator nor live code."""
