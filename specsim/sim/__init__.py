"""The simulator: SimPy replicas that replay recorded acceptance under a controller."""

from specsim.serving.engine_config import EngineConfig
from specsim.sim.simulate import simulate
from specsim.sim.workload import ClosedLoop, Gamma, Poisson, TraceArrivals, Workload

__all__ = ["ClosedLoop", "EngineConfig", "Gamma", "Poisson", "TraceArrivals", "Workload", "simulate"]
