"""Sentences from cells made by hand."""

from __future__ import annotations

import math

from specsim.study.findings import findings
from specsim.study.result import Cell


def cell(policy, speedup, half=0.02, batch=8, **changes):
    interval = (speedup - half, speedup + half)
    fields = {
        "table": "h20",
        "batch": batch,
        "policy": policy,
        "values": {"speedup": speedup},
        "speedup_interval": interval,
        "difference_to_best_fixed": None,
        "share_of_clairvoyant": None,
        "slower_than_autoregressive": interval[1] < 1.0,
        "not_distinguishable": policy != "autoregressive" and interval[0] <= 1.0 <= interval[1],
        "acceptance_by_position": [],
        "verified_by_position": [],
        "arm_share": {},
        "lossy_reason": None,
        "clairvoyant": False,
        "fixed": policy.startswith(("fixed", "autoregressive")),
    }
    return Cell(**{**fields, **changes})


def reference(**changes):
    return cell("autoregressive", 1.0, 0.0, **changes)


def test_the_winner_is_named_with_its_speedup_and_interval():
    assert findings([reference(), cell("dcut", 1.65)]) == ["h20: dcut is the fastest at batch 8 (1.65x, 1.63 to 1.67)."]


def test_an_interval_whose_ends_would_look_alike_has_a_decimal_more():
    narrow = cell("dcut", 1.6512, 0.002, difference_to_best_fixed=(0.0312, 0.0311, 0.0313), best_fixed="fixed 7")
    won, against = findings([reference(), narrow])
    assert won == "h20: dcut is the fastest at batch 8 (1.651x, 1.649 to 1.653)."
    assert against.endswith("at batch 8 (+3.12 %, +3.11 to +3.13, against fixed 7).")
    assert "(1.50x, 1.50 to 1.50)" in findings([reference(), cell("dcut", 1.5, 0.0)])[0], "they are alike"


def test_loads_with_the_same_winner_share_a_sentence():
    cells = [reference(batch=4), cell("dcut", 2.0, batch=4), reference(batch=32), cell("dcut", 1.2, batch=32)]
    assert findings(cells)[0] == (
        "h20: dcut is the fastest at batch 4 (2.00x, 1.98 to 2.02) and 32 (1.20x, 1.18 to 1.22)."
    )


def test_nothing_beating_autoregressive_is_said_as_such():
    sentences = findings([reference(), cell("dcut", 0.9)])
    assert sentences == [
        "h20: nothing beats autoregressive decoding at batch 8.",
        "h20: slower than autoregressive: dcut at batch 8 (0.90x).",
    ]


def test_where_no_speedup_is_known_nobody_is_said_to_win():
    unknown = [cell(name, math.nan, batch=4, share_of_clairvoyant=math.nan) for name in ("autoregressive", "dcut")]
    assert findings(unknown) == ["h20: no speedup is known at batch 4: no finished request has a second token."]
    assert findings([*unknown, reference(), cell("dcut", 1.65)]) == [
        "h20: dcut is the fastest at batch 8 (1.65x, 1.63 to 1.67).",
        "h20: no speedup is known at batch 4: no finished request has a second token.",
    ]


def test_all_that_are_slower_share_a_sentence():
    cells = [
        *(reference(batch=4), cell("fixed 15", 1.5, batch=4), cell("fixed 7", 1.6, batch=4)),
        *(reference(batch=32), cell("fixed 15", 0.8, batch=32), cell("fixed 7", 1.1, batch=32)),
        *(reference(batch=64), cell("fixed 15", 0.6, batch=64), cell("fixed 7", 0.9, batch=64)),
    ]
    assert (
        "h20: slower than autoregressive: fixed 15 at batch 32 (0.80x) and 64 (0.60x); fixed 7 at batch 64 (0.90x)."
    ) in findings(cells)


def test_an_interval_around_one_is_not_distinguishable():
    sentences = findings([reference(), cell("dcut", 1.01)])
    assert "h20: not distinguishable from autoregressive: dcut at batch 8 (1.01x)." in sentences


def test_bounds_and_lossy_policies_win_nothing():
    clairvoyant = cell("clairvoyant", 3.0, clairvoyant=True, arm_share={"a": 0.5, "b": 0.5})
    cells = [reference(), clairvoyant, cell("cut", 2.0, lossy_reason="x"), cell("dcut", 1.5)]
    assert findings(cells) == ["h20: dcut is the fastest at batch 8 (1.50x, 1.48 to 1.52)."]


def test_a_bound_is_not_called_slow():
    assert not any("slower" in s for s in findings([reference(), cell("clairvoyant", 0.9, clairvoyant=True)]))


def test_an_adaptive_winner_is_measured_against_the_best_fixed_policy():
    dcut = cell("dcut", 1.6, difference_to_best_fixed=(0.05, 0.03, 0.07), best_fixed="fixed 7")
    assert (
        "h20: dcut is ahead of the best fixed policy at batch 8 (+5.0 %, +3.0 to +7.0, against fixed 7)."
        in findings([reference(), dcut, cell("fixed 7", 1.5)])
    )


def test_an_interval_around_zero_decides_nothing():
    dcut = cell("dcut", 1.51, difference_to_best_fixed=(0.01, -0.01, 0.03), best_fixed="fixed 7")
    assert (
        "h20: dcut is not distinguishable from the best fixed policy at batch 8 (+1.0 %, -1.0 to +3.0, against "
        "fixed 7)." in findings([reference(), dcut, cell("fixed 7", 1.5)])
    )


def test_a_fixed_winner_is_said_to_be_ahead():
    dcut = cell("dcut", 1.4, difference_to_best_fixed=(-0.07, -0.09, -0.05), best_fixed="fixed 7")
    assert (
        "h20: dcut is the best adaptive policy, behind the best fixed one, at batch 8 (-7.0 %, -9.0 to -5.0, against "
        "fixed 7)." in findings([reference(), dcut, cell("fixed 7", 1.5)])
    )


def test_a_bandit_is_said_to_have_settled_where_it_drafted_mostly_with_one_arm():
    share = {"ngram": 0.72, "exit": 0.08, "none": 0.2}
    bandit = cell("ucb1", 1.5, arm_share=share, values={"speedup": 1.5, "regret_to_best_arm": 0.031})
    assert (
        "h20: ucb1 settled on ngram at batch 8 (90 %), at a regret of 3.1 % against the best single drafter."
        in findings([reference(), bandit])
    )


def test_what_a_bandit_settled_on_is_told_by_load():
    def bandit(batch, ngram, regret):
        values = {"speedup": 1.5, "regret_to_best_arm": regret}
        return cell("ucb1", 1.5, batch=batch, arm_share={"ngram": ngram, "exit": 1 - ngram}, values=values)

    cells = [reference(batch=4), bandit(4, 0.9, 0.01), reference(batch=8), bandit(8, 0.3, 0.05)]
    cells += [reference(batch=16), bandit(16, 0.8, 0.02)]
    assert (
        "h20: ucb1 settled on ngram at batch 4 (90 %) and 16 (80 %); exit at batch 8 (70 %), at a regret of 1.0 % to "
        "5.0 % against the best single drafter." in findings(cells)
    )


def test_a_bandit_without_a_favourite_settled_on_none():
    bandit = cell("ucb1", 1.5, arm_share={"a": 0.4, "b": 0.3, "c": 0.3})
    assert "h20: ucb1 settled on none of its drafters at batch 8 (40 % a)." in findings([reference(), bandit])


def test_a_single_drafter_settles_on_nothing():
    one = cell("dcut", 1.5, arm_share={"a": 0.9, "none": 0.1})
    assert not any("settled" in sentence for sentence in findings([reference(), one]))


def test_what_the_bound_leaves_is_said():
    assert "h20: of what a clairvoyant policy would bring, the fastest one brings at batch 8 (71 %)." in findings(
        [reference(), cell("dcut", 1.5, share_of_clairvoyant=0.71)]
    )


def test_a_bound_that_drafts_where_it_does_not_pay_is_no_share_of_anything():
    slow = reference(share_of_clairvoyant=2.45)
    sentences = findings([slow, cell("dcut", 1.5, batch=4, share_of_clairvoyant=0.71)])
    assert sentences[-2:] == [
        "h20: of what a clairvoyant policy would bring, the fastest one brings at batch 4 (71 %).",
        "h20: the clairvoyant bound, which drafts in every step, is below the fastest at batch 8.",
    ]


def test_open_loops_are_called_by_their_rate():
    cells = [reference(batch=0, rate=2.5), cell("dcut", 1.5, batch=0, rate=2.5)]
    cells += [reference(batch=0, rate=5.0), cell("dcut", 2.0, batch=0, rate=5.0)]
    assert findings(cells) == [
        "h20: dcut is the fastest at rate 2.5/s (1.50x, 1.48 to 1.52) and 5/s (2.00x, 1.98 to 2.02)."
    ]


def test_tables_are_told_apart():
    cells = [reference(), cell("dcut", 1.5), reference(table="cpu"), cell("dcut", 0.9, table="cpu")]
    assert [sentence.split(":")[0] for sentence in findings(cells)] == ["h20", "cpu", "cpu"]


def test_no_cells_say_nothing():
    assert findings([]) == []


def test_one_seed_has_no_interval_and_no_verdict_against_fixed_policies():
    nan = float("nan")
    lone = cell("dcut", 1.5, speedup_interval=(nan, nan), difference_to_best_fixed=(0.1, nan, nan))
    told = findings([reference(), lone])
    assert "h20: dcut is the fastest at batch 8 (1.50x)." in told
    assert not any("fixed" in sentence for sentence in told)
