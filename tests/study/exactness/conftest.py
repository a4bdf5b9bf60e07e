"""Laws written by hand, and the whole table, which is enumerated once."""

import numpy as np
import pytest

from specsim.study.exactness.laws import RequestLaws
from specsim.study.exactness.table import enumerate_table


@pytest.fixture(scope="session")
def table():
    """Every policy with every kind of drafter."""
    return enumerate_table()


@pytest.fixture
def laws():
    """Laws of one request over two tokens: the same target and draft after every prefix unless told otherwise."""

    def make(target=(0.3, 0.7), draft=(0.6, 0.4), depth=1, second=None):
        targets = [np.tile(target, (2**k, 1)) for k in range(depth + 1)]
        drafts = [np.tile(draft, (2**k, 1)) for k in range(depth)]
        if second is not None:
            drafts[1] = np.array(second)
        return RequestLaws(tuple(targets), tuple(drafts))

    return make
