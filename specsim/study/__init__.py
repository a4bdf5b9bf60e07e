"""Studies: many runs compared, their differences with intervals, and what they say in words."""
