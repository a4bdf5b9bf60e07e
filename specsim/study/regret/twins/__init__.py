"""Drafter policies for many runs at once: twins of the definitions in `specsim.policies.arms`, equal step for step.

A twin keeps the definition's state as arrays [S, A] for S runs of A arms, and takes its random draws run by run in the
order in which S definitions sharing one generator would. A test plays both and compares every pull.
"""
