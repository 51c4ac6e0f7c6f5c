"""Sizes of the package, for a reviewer who asks whether each split says more than its body: `make sizes`.

No test holds them: numbers that were tests bent the code.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

from tests.house.sources import modules, path_of

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LARGE_FILE = 700
LONG_FUNCTION = 60


def print_sizes() -> None:
    """Lines and files of each package, large files, long functions, and private functions with one caller."""
    lines, files = Counter[str](), Counter[str]()
    functions = once = skips = 0
    large: list[tuple[int, str]] = []
    long: list[tuple[int, str]] = []
    for name, tree in modules().items():
        text = path_of(name).read_text("utf-8")
        count = text.count("\n")
        package = ".".join(name.split(".")[1 : 3 if ".features." in name else 2]) or "rankscope"
        lines[package] += count
        files[package] += 1
        skips += text.count("# fmt: skip")
        large += [(count, name)] if count > LARGE_FILE else []
        words = Counter(re.findall(r"\w+", text))
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                functions += 1
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                long += [(size, f"{name}:{node.name}")] if size > LONG_FUNCTION else []
                once += node.name.startswith("_") and not node.name.startswith("__") and words[node.name] == 2
    print(f"{lines.total():,} lines in {files.total():,} files, {skips:,} times `fmt: skip`")
    for package, count in lines.most_common():
        print(f"  {count:7,} {files[package]:4} {package}")
    print(f"{once:,} of {functions:,} functions are private and have one caller: {once / functions:.0%}")
    print("\n".join(f"  {count:5,} lines: {name}" for count, name in sorted((*large, *long), reverse=True)))


if __name__ == "__main__":
    print_sizes()
