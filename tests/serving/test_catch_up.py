"""What an idle drafter missed."""

from __future__ import annotations

import numpy as np

from specsim.serving.catch_up import CatchUp


def slots(*numbers):
    return np.array(numbers, np.int64)


def test_a_drafter_in_use_misses_nothing():
    catch_up, length = CatchUp(2, 3), slots(10, 20, 30)
    for slot in range(3):
        catch_up.admit(slot, int(length[slot]))
        catch_up.join()
    for _ in range(4):
        assert catch_up.missed(0, slots(0, 1, 2), length) == 0
        length += 5


def test_switching_back_misses_what_was_emitted_meanwhile():
    catch_up, length = CatchUp(2, 2), slots(10, 20)
    catch_up.admit(0, 10)
    catch_up.admit(1, 20)
    catch_up.join()
    assert catch_up.missed(0, slots(0, 1), length) == 0
    length += slots(3, 4)
    assert catch_up.missed(1, slots(0, 1), length) == 7  # drafter 1 has not seen the first step's tokens
    length += slots(1, 1)
    assert catch_up.missed(-1, slots(0, 1), length) == 0  # nobody drafts
    length += slots(1, 1)
    assert catch_up.missed(1, slots(0, 1), length) == 2  # the plain step's tokens; its own it had
    length += slots(2, 2)
    assert catch_up.missed(0, slots(0, 1), length) == 8  # its own first step aside, all since


def test_a_prompt_that_is_computed_here_is_missed_by_every_drafter_at_first():
    catch_up, length = CatchUp(1, 1), slots(33)
    catch_up.admit(0, 0)
    catch_up.join()
    assert catch_up.missed(0, slots(0), length) == 33


def test_a_reused_slot_inherits_nothing():
    catch_up, length = CatchUp(2, 2), slots(10, 20)
    catch_up.admit(0, 10)
    catch_up.admit(1, 20)
    catch_up.join()
    catch_up.missed(0, slots(0, 1), length)
    catch_up.admit(1, 0)  # the request left, another came, still prefilling
    length[1] = 99
    assert catch_up.missed(1, slots(0), length) == 0
    catch_up.join()
    assert catch_up.missed(0, slots(0, 1), length) == 99


def test_idle_drafters_that_keep_up_miss_one_step_at_a_time():
    catch_up, length = CatchUp(3, 2), slots(10, 20)
    catch_up.admit(0, 10)
    catch_up.admit(1, 20)
    catch_up.join()
    assert catch_up.missed(0, slots(0, 1), length) == 0
    assert catch_up.missed_by_the_idle(0, slots(0, 1), length) == [0, 0, 0]
    length += slots(3, 4)
    assert catch_up.missed(0, slots(0, 1), length) == 0
    assert catch_up.missed_by_the_idle(0, slots(0, 1), length) == [0, 7, 7]
    length += slots(1, 1)
    assert catch_up.missed(1, slots(0, 1), length) == 2  # kept up until the last step
    assert catch_up.missed_by_the_idle(1, slots(0, 1), length) == [0, 0, 2]  # drafter 0 drafted in it itself


def test_requests_with_different_drafters_miss_different_tokens():
    catch_up, length = CatchUp(2, 3), slots(10, 20, 30)
    for slot in range(3):
        catch_up.admit(slot, int(length[slot]))
    assert catch_up.missed_by_request(slots(0, 0, 1), slots(0, 1, 2), length) == [0, 0]
    length += slots(1, 2, 4)
    # The second request goes to drafter 1, which missed its two tokens; the third to drafter 0, which missed four.
    assert catch_up.missed_by_request(slots(0, 1, 0), slots(0, 1, 2), length) == [4, 2]
    length += slots(1, 1, 1)
    assert catch_up.missed_by_request(slots(-1, -1, -1), slots(0, 1, 2), length) == [0, 0]
    length += slots(1, 1, 1)
    # All to drafter 0: it missed the plain step's token of each, and the second request's token before that.
    assert catch_up.missed_by_request(slots(0, 0, 0), slots(0, 1, 2), length) == [1 + 2 + 1, 0]


def test_requests_with_different_drafters_may_keep_all_up_to_date():
    catch_up, length = CatchUp(2, 2), slots(10, 20)
    catch_up.admit(0, 10)
    catch_up.admit(1, 20)
    catch_up.missed_by_request(slots(0, 1), slots(0, 1), length, by_the_idle=True)
    length += slots(3, 4)
    assert catch_up.missed_by_request(slots(1, 0), slots(0, 1), length, by_the_idle=True) == [4, 3]
    length += slots(1, 1)
    assert catch_up.missed_by_request(slots(1, 0), slots(0, 1), length, by_the_idle=True) == [1, 1]


def test_a_slot_that_changed_hands_is_not_credited_to_its_last_drafter():
    catch_up, length = CatchUp(2, 2), slots(10, 20)
    catch_up.admit(0, 10)
    catch_up.admit(1, 20)
    catch_up.missed_by_request(slots(0, 1), slots(0, 1), length)
    catch_up.admit(1, 0)
    length[1] = 50
    assert catch_up.missed_by_request(slots(0, 1), slots(0, 1), length) == [0, 50]
