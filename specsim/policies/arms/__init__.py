"""Drafter policies: which drafter drafts the next step. One file a policy."""
