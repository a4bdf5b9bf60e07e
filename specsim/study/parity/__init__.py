"""Whether a live run and the simulator decide alike, and how well the simulator predicts what was measured."""
