"""What verification computes on a device, defined for any array library."""
