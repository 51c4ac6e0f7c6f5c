"""Files of a gate for CI: JUnit XML with a test case for each budget, and a Markdown summary for the page of a job."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from rankscope.features.comparison.report.comparison_report import MOST_HYPOTHESES
from rankscope.features.comparison.report.sides_section import answer_text, gate_blocks
from rankscope.features.comparison.rules.model import RunComparison
from rankscope.report.blocks import Grid
from rankscope.report.markdown import markdown_block
from rankscope.text.escaping import markdown
from rankscope.text.secrets import hide

SUITE = "rankscope diff"
_NO_XML = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 forbids, or that are control characters (https://www.w3.org/TR/xml/#charsets)."""


def gate_junit(found: RunComparison) -> bytes:
    """JUnit XML in UTF-8: a failed budget is a failure, and one that cannot be measured an error."""
    failed, unmeasured = (sum(check.outcome == outcome for check in found.gate) for outcome in ("failed", "unmeasured"))
    counts = {"tests": str(len(found.gate)), "failures": str(failed), "errors": str(unmeasured)}
    root = ET.Element("testsuites", {"name": SUITE, **counts})
    suite = ET.SubElement(root, "testsuite", {"name": SUITE, **counts, "skipped": "0"})
    for check in found.gate:
        case = ET.SubElement(suite, "testcase", {"classname": "rankscope.diff", "name": _plain(check.budget)})
        if check.outcome == "passed":
            ET.SubElement(case, "system-out").text = _plain(check.reason)
        else:
            kind = "failure" if check.outcome == "failed" else "error"
            below = "\n".join(_plain(line) for line in (check.reason, *_causes(found)))
            ET.SubElement(case, kind, {"message": _plain(check.reason), "type": check.outcome}).text = below
    ET.SubElement(suite, "system-out").text = _plain(answer_text(found))
    ET.indent(root)
    data: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def gate_summary(found: RunComparison) -> bytes:
    """A Markdown summary in UTF-8: the answer, the budgets, the parts and the causes."""
    blocks = [f"## {markdown(hide(answer_text(found)))}"]
    for block in gate_blocks(found.gate):
        blocks += markdown_block(block)
    parts = [(part.name, hide(part.answer)) for part in found.parts]
    blocks += markdown_block(Grid(head=("compared", "answer"), rows=parts))
    blocks += [f"- {markdown(cause)}" for cause in _causes(found)]
    return ("\n\n".join(blocks) + "\n").encode("utf-8", "replace")


def _causes(found: RunComparison) -> list[str]:
    return [f"may be the cause: {hide(cause.cause)}" for cause in found.hypotheses[:MOST_HYPOTHESES]]


def _plain(text: str) -> str:
    return _NO_XML.sub("?", hide(text))
