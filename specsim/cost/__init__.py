"""What steps cost: tables of measured cells, and how they are looked up."""

from specsim.cost.cells import Cell
from specsim.cost.meta import CostMeta, Ranges
from specsim.cost.table import CostTable

__all__ = ["Cell", "CostMeta", "CostTable", "Ranges"]
