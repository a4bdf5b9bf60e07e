"""Who runs, and on which KV blocks: the scheduling that the simulator and the live engine share."""

from specsim.serving.engine_config import EngineConfig
from specsim.serving.scheduler import Scheduler
from specsim.serving.slots import Request, Slots

__all__ = ["EngineConfig", "Request", "Scheduler", "Slots"]
