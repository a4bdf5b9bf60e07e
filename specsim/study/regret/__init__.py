"""The regret study: what choosing a drafter while learning costs, over many seeds at once."""
