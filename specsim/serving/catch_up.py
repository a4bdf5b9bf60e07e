"""What a drafter missed while it was idle, token by token."""

from __future__ import annotations

import numpy as np


class CatchUp:
    """Sequence length up to which each drafter's own cache is complete, by arm and slot.

    A drafter that drafted for a request in the previous step is up to date: feeding the tokens that step
    accepted is part of drafting. One that did not must first compute what it missed.

    num_arms    drafters
    num_slots   slots
    """

    def __init__(self, num_arms: int, num_slots: int) -> None:
        self._complete = np.zeros((num_arms, num_slots), np.int64)
        self._fresh = np.zeros(num_slots, bool)  # taken by a request that has not decoded yet
        self._joined = False
        self._last_arm = -1
        self._last_slots = np.zeros(0, np.int64)
        self._last_arms = np.zeros(0, np.int64)  # of each of them, where a step may have several

    def admit(self, slot: int, complete: int) -> None:
        """A request took a slot; every drafter's cache holds its first `complete` tokens."""
        self._complete[:, slot] = complete
        self._fresh[slot] = True

    def join(self) -> None:
        """A request decodes for the first time in the next step."""
        self._joined = True

    def missed(self, arm: int, slots: np.ndarray, length: np.ndarray) -> int:
        """Tokens `arm` must compute before it can draft in this step, summed over requests.

        arm         index, -1 for a plain step, which leaves every drafter idle
        slots       [B] int64, the step's requests
        length      [slots] int64, sequence length of every slot
        """
        missed = 0
        if arm != self._last_arm or self._joined:
            if self._last_arm >= 0:
                stayed = self._last_slots[~self._fresh[self._last_slots]]
                self._complete[self._last_arm, stayed] = length[stayed]
            if arm >= 0:
                missed = int((length[slots] - self._complete[arm, slots]).sum())
            self._fresh[slots] = False
            self._joined = False
        self._last_arm = arm
        self._last_slots = slots
        return missed

    def missed_by_the_idle(self, arm: int, slots: np.ndarray, length: np.ndarray) -> list[int]:
        """Tokens every drafter but `arm` must compute to stay up to date, by drafter; `missed` comes first.

        arm, slots, length  as for `missed`
        """
        missed = (length[slots] - self._complete[:, slots]).sum(axis=1)
        missed[arm] = 0
        idle = np.arange(len(missed)) != arm
        self._complete[np.ix_(idle, slots)] = length[slots]
        return [int(tokens) for tokens in missed]

    def missed_by_request(
        self, arms: np.ndarray, slots: np.ndarray, length: np.ndarray, by_the_idle: bool = False
    ) -> list[int]:
        """Tokens each drafter must compute before this step, by drafter, where requests may have different ones.

        A run uses either this or `missed`, never both.

        arms            [B] int64, the drafter of each request, -1 where none drafts
        slots, length   as for `missed`
        by_the_idle     whether every drafter stays up to date with every request
        """
        drafted = (self._last_arms >= 0) & ~self._fresh[self._last_slots]
        stayed = self._last_slots[drafted]
        self._complete[self._last_arms[drafted], stayed] = length[stayed]
        missed = length[slots] - self._complete[:, slots]
        if by_the_idle:
            self._complete[:, slots] = length[slots]
        else:
            missed = np.where(np.arange(len(missed))[:, None] == arms, missed, 0)
        self._fresh[slots] = False
        self._last_arms, self._last_slots = arms, slots
        return [int(tokens) for tokens in missed.sum(axis=1)]
