"""Where the runs of a study happen: in this process, or in several on this machine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from joblib import Parallel, delayed

T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Applies a function to tasks, in any order; a task's failure is raised here."""

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """The results, each as soon as it is there."""
        ...


class InProcess:
    """One task after the other."""

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """The results in the order of the tasks."""
        return map(function, tasks)


class Processes:
    """Several processes of this machine.

    jobs    how many
    """

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def map(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """The results in the order they come."""
        # A process that holds 300 MB more than after its first task is replaced by a new one, and its task is done all
        # the same: traces and cost tables stay open between the tasks of a study, so that is no leak to warn of.
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)
        pool = Parallel(n_jobs=self.jobs, backend="loky", return_as="generator_unordered", pre_dispatch="2*n_jobs")
        results: Iterator[R] = pool(delayed(function)(task) for task in tasks)
        return results


def executor_for(jobs: int, num_tasks: int) -> Executor:
    """Processes, or none where a second one has nothing to do.

    jobs        most processes
    num_tasks   tasks there are
    """
    return Processes(min(jobs, num_tasks)) if jobs > 1 and num_tasks > 1 else InProcess()
