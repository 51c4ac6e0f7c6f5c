"""Recognition of Chrome traces, whoever wrote them, by the first keys of the document or of its first event."""

from __future__ import annotations

import re

_DOCUMENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"')
_KEYS = re.compile(
    rb'"(?:schemaVersion|deviceProperties|traceEvents|distributedInfo|baseTimeNanoseconds|displayTimeUnit|traceName'
    rb'|cupti_version|roctracer_version|systemTraceEvents|viztracer_metadata|highres-ticks)"\s*:'
)
_LIST = re.compile(rb'(?:\xef\xbb\xbf)?\s*\[\s*\{[^{}]{0,400}?(?:\{[^{}]{0,400}\}[^{}]{0,200}?)?"ph"\s*:')


def looks_like_trace(head: bytes) -> bool:
    """Whether the first bytes of a file can begin a trace."""
    if _DOCUMENT.match(head) is not None and _KEYS.search(head) is not None:
        return True
    return _LIST.match(head) is not None
