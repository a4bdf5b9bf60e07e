"""The values that `specsim tune` searches for each policy unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DEPTH = "1..max"
RATIOS = ".25/.5/.75/1,.125/.25/.5/.75/1,.1/.2/.3/.4/.5/.6/.7/.8/.9/1,.5/1,all"
EXPLORATION = "0.05..3:log"
DISCOUNT = "0.95..0.9999"
REWARD = "accepted_fraction,throughput"

DEFAULT_SPACES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "fixed_depth": {"depth": DEPTH},
        "fixed_ratio": {"depth": DEPTH, "ratio": "0.05..1"},
        "ema_tiers": {"alpha": "0.02..1:log", "interval": "1..50:log", "up": "-0.5..0.5", "down": "-0.75..0.25"},
        "confidence_stop": {"depth": DEPTH, "threshold": "0.0..0.95", "keep": "false,true"},
        "specdec_pp": {"depth": DEPTH, "threshold": "0.05..0.95"},
        "adaspec": {"depth": DEPTH},
        "dcut": {"depth": DEPTH, "ratios": RATIOS, "include_zero": "false,true", "numerator": "paper,bonus"},
        "dcut_causal": {"depth": DEPTH, "numerator": "paper,bonus"},
        "dcut_lagged": {
            "depth": DEPTH,
            "ratios": RATIOS,
            "include_zero": "false,true",
            "numerator": "paper,bonus",
            "lag": "1..4",
            "start": "corrected,optimistic",
        },
        "dspark": {"depth": DEPTH, "numerator": "paper,bonus", "lag": "1..4", "start": "corrected,optimistic"},
        "slo_dcut": {"depth": DEPTH, "ratios": RATIOS.removesuffix(",all"), "numerator": "paper,bonus"},
        "goodput_depth": {"depth": DEPTH, "model": "table,linear", "alpha": "0.005..0.5:log", "prior": "0.0..1"},
        "tetris": {"depth": DEPTH, "per_request": "0..max"},
        "epsilon_greedy": {"reward": REWARD, "epsilon": "0.001..0.3:log"},
        "ucb1": {"reward": REWARD, "c": EXPLORATION},
        "kl_ucb": {"c": "0.0..3"},
        "thompson_beta": {"prior": "0.1..100:log"},
        "thompson_gaussian": {"reward": REWARD, "sigma": "0.01..2:log"},
        "sliding_window_ucb": {"reward": REWARD, "window": "20..5000:log", "c": EXPLORATION},
        "discounted_ucb": {"reward": REWARD, "discount": DISCOUNT, "c": EXPLORATION},
        "discounted_thompson_beta": {"prior": "0.1..100:log", "discount": DISCOUNT},
        "discounted_thompson_gaussian": {"reward": REWARD, "sigma": "0.01..2:log", "discount": DISCOUNT},
        "exp3s": {"reward": REWARD, "gamma": "0.005..0.5:log", "alpha": "1e-6..0.01:log"},
        "change_point": {
            "base": "thompson_beta,thompson_gaussian,ucb1",
            "false_alarm": "0.001..0.5:log",
            "explore": "0.001..0.2:log",
            "window": "50..2000:log",
        },
        "hedge": {"rate": "0.001..1:log", "share": "1e-5..0.1:log"},
        "temperature": {"refit_every": "10..1000:log", "window": "256..16384:log"},
        "logistic": {"refit_every": "10..1000:log", "window": "256..16384:log"},
        "isotonic": {"refit_every": "10..1000:log", "window": "256..16384:log"},
    }
)
"""Policy -> option -> LOW..HIGH, LOW..HIGH:log, or values with commas between; `max` is the deepest draft.

An option that is not here is searched only when its values are given: `score` changes what is exact, `scale` and
`capacity` depend on the machine, and a schedule has no order."""
