"""What verification computes on a device: a definition for any array library, and beside it its Triton twin."""
