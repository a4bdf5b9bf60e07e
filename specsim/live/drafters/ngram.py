"""Prompt lookup: copy what followed the last time the text ended like this.

Source: prompt lookup decoding (Saxena, 2023); matching longest n-gram first as vLLM does, but the most recent
occurrence, which is the better guess in code and loops.
"""

from __future__ import annotations

import numpy as np

from specsim.core import DrafterSpec
from specsim.live.drafters.proposals import Proposals

LONGEST, SHORTEST = 3, 1
"""n-gram lengths that are looked up, longest first."""

LONGEST_MATCH = 32
"""Tokens up to which agreement before the n-gram is followed when the prior is computed."""

PRIOR_OFFSET = 2.0
"""In the prior m / (m + PRIOR_OFFSET) of a copied token being right after m matching tokens."""

SCORE_SOURCE = (
    "expected share of continuations that agree, from the text so far: prior m/(m+2) for m matching tokens, weight 1, "
    "then one observation for every other earlier occurrence of the n-gram that agreed with the drafts before"
)


class Ngram:
    """Drafts by copying from the request's own text; costs no model pass.

    max_depth   draft tokens a block
    """

    def __init__(self, max_depth: int) -> None:
        self.spec = DrafterSpec(
            name="ngram",
            kind="ngram",
            law="point_mass",
            structure="parallel",
            scores=("drawn_prob",),
            max_depth=max_depth,
            passes="per_block",
            target_fraction=0.0,
        )
        self.score_source = SCORE_SOURCE

    def propose(self, text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Propose the tokens after a text.

        text        [T] int64, prompt and output so far
        returns     token_ids [D] int64 and confidence [D] float64, or both empty when nothing matches
        """
        starts = _occurrences(text)
        if not len(starts):
            return np.zeros(0, np.int64), np.zeros(0)
        start = starts[-1]
        steps = np.arange(self.spec.max_depth)
        # Past the end of the text the copy goes on with what it has just copied, as a loop would.
        token_ids = text[start + steps % (len(text) - start)]
        return token_ids, _confidence(text, starts, token_ids)

    def propose_everywhere(self, prompt: np.ndarray, output: np.ndarray) -> Proposals:
        """See `Drafter.propose_everywhere`."""
        text = np.concatenate([prompt, output])
        shape = (len(output), self.spec.max_depth)
        token_ids, confidence = np.full(shape, -1, np.int64), np.zeros(shape)
        num_drafts = np.zeros(len(output), np.int64)
        for position in range(len(output)):
            drafted, scores = self.propose(text[: len(prompt) + position])
            num_drafts[position] = len(drafted)
            token_ids[position, : len(drafted)] = drafted
            confidence[position, : len(drafted)] = scores
        return Proposals(token_ids, num_drafts, confidence)


def _occurrences(text: np.ndarray) -> np.ndarray:
    """Indices right after each earlier occurrence of the longest final n-gram that occurred before, rising."""
    for length in range(min(LONGEST, len(text) - 1), SHORTEST - 1, -1):
        windows = np.lib.stride_tricks.sliding_window_view(text[:-1], length)
        matches = np.flatnonzero((windows == text[-length:]).all(axis=1))
        if len(matches):
            return matches + length
    return np.zeros(0, np.int64)


def _confidence(text: np.ndarray, starts: np.ndarray, token_ids: np.ndarray) -> np.ndarray:
    """Posterior mean of each draft being right, given that those before it were.

    text        [T] int64
    starts      [N] int64, where the continuations of the earlier occurrences begin; the last one was copied
    token_ids   [D] int64, the drafts
    returns     [D] float64 in (0, 1)

    The copied occurrence itself is no evidence: it agrees by construction. Each other one that agreed up to a
    position and whose next token is known counts as one observation of that position.
    """
    steps = np.arange(len(token_ids))
    index = starts[:-1, None] + steps
    known = index < len(text)
    agrees = known & (text[np.minimum(index, len(text) - 1)] == token_ids)
    agreed = np.cumprod(agrees, axis=1, dtype=np.int64)
    agreed_before = np.concatenate([np.ones((len(index), 1), np.int64), agreed[:, :-1]], axis=1)
    hits, trials = agreed.sum(axis=0), (agreed_before * known).sum(axis=0)
    matched = _match_length(text, int(starts[-1])) + steps
    return (hits + matched / (matched + PRIOR_OFFSET)) / (trials + 1.0)


def _match_length(text: np.ndarray, start: int) -> int:
    """Number of tokens before `start` that equal the text's last ones, up to LONGEST_MATCH."""
    span = min(start, LONGEST_MATCH)
    differs = text[start - span : start][::-1] != text[len(text) - span :][::-1]
    return int(differs.argmax()) if differs.any() else span
