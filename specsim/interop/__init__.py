"""What other engines write: read into specsim's own forms."""
