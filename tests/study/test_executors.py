"""Where runs happen changes nothing of what they bring."""

from __future__ import annotations

import os
import warnings

import pytest

from specsim.errors import InputError
from specsim.study.executors import InProcess, Processes, executor_for


def square(number):
    return number * number, os.getpid()


def fail(number):
    raise InputError(f"task {number} cannot run")


@pytest.mark.parametrize("executor", [InProcess(), Processes(2)])
def test_every_task_brings_one_result(executor):
    assert sorted(result for result, _ in executor.map(square, range(7))) == [0, 1, 4, 9, 16, 25, 36]


def test_processes_are_other_processes():
    pids = {pid for _, pid in Processes(2).map(square, range(6))}
    assert os.getpid() not in pids
    assert {pid for _, pid in InProcess().map(square, range(6))} == {os.getpid()}


@pytest.mark.parametrize("executor", [InProcess(), Processes(2)])
def test_what_a_person_got_wrong_is_still_that_in_another_process(executor):
    with pytest.raises(InputError, match=r"task \d cannot run"):
        list(executor.map(fail, range(3)))


def test_a_process_that_is_replaced_by_a_new_one_is_no_news_to_the_user():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(Processes(2).map(square, range(2)))
        warnings.warn("A worker stopped while some jobs were given to the executor. This can be ...", stacklevel=1)
        warnings.warn("another", stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["another"]


def test_no_process_is_started_where_it_has_nothing_to_do():
    assert isinstance(executor_for(jobs=1, num_tasks=50), InProcess)
    assert isinstance(executor_for(jobs=8, num_tasks=1), InProcess)
    executor = executor_for(jobs=8, num_tasks=3)
    assert isinstance(executor, Processes)
    assert executor.jobs == 3
