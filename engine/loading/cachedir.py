"""The cache folder as the loaders know it; kernels keep what they build there, too."""

from magicdec.kernels.cachedir import OVERRIDE, cache_root

__all__ = ["OVERRIDE", "cache_root"]
