"""Features know each other only where one builds on what another found."""

from __future__ import annotations

from tests.house.sources import imports

KNOWS = {
    "comparison": {"numbers", "replay", "traces"},
    "logs": {"memory", "stacks"},
    "memory": {"traces"},
    "numbers": {"logs"},
    "replay": {"traces"},
    "series": {"logs"},
    "traces": {"memory"},
}
"""By feature the others that it imports."""


def feature_of(module: str) -> str:
    """The feature that a module belongs to; "" for the core."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["features"] and len(parts) > 2 else ""


def test_features_import_each_other_only_as_listed() -> None:
    known: dict[str, set[str]] = {}
    for name, others in imports().items():
        feature = feature_of(name)
        for other in {feature_of(other) for other in others} - {"", feature}:
            if feature:
                known.setdefault(feature, set()).add(other)
    assert known == KNOWS
