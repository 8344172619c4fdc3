"""Fails where modules import each other in a circle; imports inside functions count, too.

python -m tests.circles
"""

from __future__ import annotations

import sys

import grimp

PACKAGES = ("magicdec.cli", "magicdec.engine", "magicdec.kernels", "magicdec.profiles")


def circles(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """What is left of module -> imported modules once all are gone that nothing left imports, or
    that import nothing left: the circles, and what lies between them."""
    left = {module: found - {module} for module, found in imports.items()}
    while left:
        imported = set().union(*left.values())
        ends = {module for module, found in left.items() if not found or module not in imported}
        if not ends:
            break
        left = {module: found - ends for module, found in left.items() if module not in ends}
    return left


def main() -> int:
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    found = circles({m: graph.find_modules_directly_imported_by(m) for m in graph.modules})
    for module, imported in sorted(found.items()):
        print(f"in a circle of imports: {module} -> {', '.join(sorted(imported))}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
