"""Everything that runs a real model: loading, drafters, the trace recorder and the cost profiler.

The only package, beside the Triton kernels, that may import torch and transformers.
"""
