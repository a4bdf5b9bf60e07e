"""What of an accepted block a request really emits: it may end inside the block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.live.members import Members


@dataclass(frozen=True, slots=True)
class Emission:
    """What one step brought each of B requests.

    num_accepted  [B] int64, drafts that are in the output
    num_emitted   [B] int64, tokens committed
    stopped       [B] bool, whether a stop token or a stop text ended the output
    """

    num_accepted: np.ndarray
    num_emitted: np.ndarray
    stopped: np.ndarray


def cut_blocks(
    blocks: np.ndarray, num_accepted: np.ndarray, room: np.ndarray, stop_ids: np.ndarray, members: Members
) -> Emission:
    """Where each block ends: at the first stop token, at a stop text, or at the request's limit, whichever is first.

    blocks        [B, D + 1] int64, accepted drafts, then the token that follows them; what lies behind is not read
    num_accepted  [B] int64
    room          [B] int64, tokens the request may still emit
    stop_ids      the model's stop tokens
    members       the requests; the text of those that a stop text may end grows by what is emitted
    """
    num_emitted = np.minimum(num_accepted + 1, room)
    stopped = np.zeros(len(blocks), bool)
    if members.any_eos:
        places = np.arange(blocks.shape[1])
        stops = np.isin(blocks, stop_ids) & (places < num_emitted[:, None]) & members.eos[:, None]
        stopped = stops.any(axis=1)
        num_emitted = np.where(stopped, stops.argmax(axis=1) + 1, num_emitted)
    for row in members.with_stops:
        detokenizer = members.requests[row].detokenizer
        assert detokenizer is not None
        for place in range(int(num_emitted[row])):
            if stopped[row] and place + 1 == num_emitted[row]:
                break  # the stop token has no text
            if detokenizer.add(int(blocks[row, place])):
                num_emitted[row], stopped[row] = place + 1, True
                break
    return Emission(np.minimum(num_accepted, num_emitted), num_emitted, stopped)


def add_text(blocks: np.ndarray, emission: Emission, members: Members) -> None:
    """Let the text of every request that no stop text can end grow by what it emitted; a stop token has none.

    blocks      [B, D + 1] int64, as for `cut_blocks`
    """
    for row in members.with_text:
        detokenizer = members.requests[row].detokenizer
        assert detokenizer is not None
        for token in blocks[row, : emission.num_emitted[row] - emission.stopped[row]].tolist():
            detokenizer.add(token)
