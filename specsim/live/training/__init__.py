"""Train drafters for a target on the target's own outputs."""
