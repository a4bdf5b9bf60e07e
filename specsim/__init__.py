"""specsim: a policy simulator and live controller for speculative decoding."""

__version__ = "0.1.0"
