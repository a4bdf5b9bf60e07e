"""What prompt lookup is worth on held-out outputs of a target, in the figures that training gives of its drafters.

    python benchmarks/ngram_held_out.py eval.npz

Where it finds nothing to copy, its confidence is 0. The data are those that `examples/train_drafter.py --eval` takes.
The last line printed is one JSON object, in the form of a drafter in benchmarks/drafters.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from specsim.errors import InputError
from specsim.live.drafters.ngram import Ngram
from specsim.live.training.data import TokenData, loops, read_tokens
from specsim.live.training.evaluate import DEPTHS, RowResult, summarise, table


def judged(drafter: Ngram, data: TokenData, row: int) -> RowResult:
    """One output at each of its anchors; the first one is the output's first token, as for trained drafters."""
    tokens, start = data.row(row), int(data.prompt_len[row])
    output = tokens[start:]
    proposals = drafter.propose_everywhere(tokens[:start], output)
    index = np.arange(len(output))[:, None] + np.arange(proposals.token_ids.shape[1])
    drafted = np.arange(proposals.token_ids.shape[1]) < proposals.num_drafts[:, None]
    right = drafted & (index < len(output)) & (proposals.token_ids == output[np.minimum(index, len(output) - 1)])
    return RowResult(int(data.domain[row]), loops(output), right[1:], np.where(drafted, proposals.confidence, 0.0)[1:])


def main() -> int:
    """Judge, and print."""
    if len(sys.argv) != 2:
        print("give the held-out data: python benchmarks/ngram_held_out.py eval.npz", file=sys.stderr)
        return 2
    try:
        data = read_tokens(Path(sys.argv[1]))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    rows = np.flatnonzero(data.lengths - data.prompt_len >= 2)
    drafter = Ngram(max(DEPTHS))
    evaluation = summarise([judged(drafter, data, int(row)) for row in rows], data.domains)
    print(table(evaluation))
    print(json.dumps({"parameters": 0, "evaluation": evaluation}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
