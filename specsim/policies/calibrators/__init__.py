"""Calibrators: from a drafter's raw score to the chance that a draft is accepted. One file a calibrator."""
