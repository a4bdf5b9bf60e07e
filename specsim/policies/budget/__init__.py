"""Budget policies: how deep to draft and how many drafts the target verifies. One file a policy."""
