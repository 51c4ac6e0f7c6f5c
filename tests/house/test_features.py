"""Features know each other only where one builds on what another found."""

from __future__ import annotations

from tests.house.sources import imports

KNOWS = {
    # a comparison of two runs compares what features found in each
    "comparison.page.difference_map": {"traces.rules.model"},
    # a command line of a process is read as one of a log
    "comparison.rules.settings_differences": {"series.read.run_options"},
    "comparison.rules.tensor_differences": {
        "numbers.rules.model", "numbers.rules.named_tensors", "numbers.rules.tensor_matching",
    },
    "comparison.rules.traced_times": {"traces.rules.device_spans", "traces.rules.model"},
    # lines of a log tell of checks that a framework made of its numbers
    "numbers.rules.logged_checks": {"logs.rules.engine_reports"},
    # a log holds the steps of a trainer beside all else
    "logs.read.log_decoder": {"series.read.training_lines"},
    "logs.rows.log_training": {"series.read.scalar_rows"},
    # a schedule of traces is what their analysis matched
    "replay.replay_source": {"traces.rules.trace_story"},
    # the schedule of traces, too, is what their analysis matched; a headline of theirs stays
    "whatif.dump_calls": {"traces.rules.trace_story"},
    "whatif.recorded_calls": {
        "traces.rules.device_spans", "traces.rules.model", "traces.rules.trace_story", "traces.rules.trace_tables",
    },
    "whatif.whatif_findings": {"traces.rules.model"},
}  # fmt: skip
"""By module of a feature the modules of others that it imports."""
FEATURES = "rankscope.features."


def feature_of(module: str) -> str:
    """The feature that a module belongs to; "" for the core."""
    return module.removeprefix(FEATURES).partition(".")[0] if module.startswith(FEATURES) else ""


def test_features_import_each_other_only_as_listed() -> None:
    known: dict[str, set[str]] = {}
    for name, others in imports().items():
        for other in others:
            if feature_of(name) and feature_of(other) not in ("", feature_of(name)):
                known.setdefault(name.removeprefix(FEATURES), set()).add(other.removeprefix(FEATURES))
    assert known == KNOWS
