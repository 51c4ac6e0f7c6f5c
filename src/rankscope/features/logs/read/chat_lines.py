"""Lines that a person wrote around a pasted log: what they say of ranks and errors is no evidence.

Programs print neither "I" nor questions, and no guesses about themselves; a line with the head of a logger, a launcher
or an exception is a program's, whatever it says.
"""

from __future__ import annotations

import re

from rankscope.features.logs.read.log_record import Record

LONGEST = 1000
"""Characters of the longest line that may be a person's."""
_SPEAKER = re.compile(
    r"(?:^|[\s,.(\"'])(?:I(?: [a-z]|['\u2019](?:m|ve|d|ll)\b)|my (?=[a-z])|[Mm]y (?:job|training|run|guess)\b)"
    r"|\b(?:[Dd]oes|[Hh]as|[Cc]an|[Dd]id) (?:any|some)(?:one|body)\b"
    r"|^\W{0,3}(?:Hi|Hello|Hey|Thanks|Update)\b(?! ?[:=/])"
    r"|^\W{0,3}(?:Why|What|How|Is it|Any idea|Any help|Does|Could you|Can you|Do you)\b[^?]{8,}\?"
    r"|\b(?:we|We)(?:['\u2019](?:re|ve)| (?:see|get|run|use|hit|tried|have|are)\b)"
)
"""Words of somebody who speaks of himself, asks or greets."""
_HABIT = re.compile(
    r"\b(?:sometimes|often|usually|always|whenever|yesterday|every (?:time|few|once|day|night)|last (?:week|night|time)"
    r"|seems to|looks like|probably|maybe|I guess|no idea|any ideas?)\b",
    re.IGNORECASE,
)
_TELLS = re.compile(
    r"\b(?:dies|crashes|hangs|freezes|OOMs|stops|gets stuck|is stuck|fails"
    r"|runs out of|keeps|happens|goes|throws|gives)\b"
)
"""What happens again and again: a program tells what happened once."""
_PROGRAM = re.compile(
    r"\s|(?:[A-Za-z_]\w{0,60}\.){0,8}\w{0,60}(?:Error|Exception|Warning|Interrupt)\b[:(]|(?:[A-Za-z_.\-]{1,40}: ){0,2}"
    r"(?:[Ee]rror|ERROR|[Ww]arning|WARN(?:ING)?|INFO|FATAL|fatal)\b[: ]|\[|\(|\{|what\(\)"
    r"|\S{1,200}\.(?:cc|cpp|cu|h|py|c):\d"
    r"|[\w.\-]{1,255}:\d{1,10}:\d{1,10} |Exception |Traceback |File \"|CUDA (?:out of memory\.|error:|runtime)"
)
"""Beginnings of lines of programs."""


def is_chat(record: Record) -> bool:
    """Whether a line without the head of a program is the sentence of a person."""
    text = record.text
    if record.label or record.stamp is not None or record.rank is not None or record.level or len(text) > LONGEST:
        return False
    if " " not in text or _PROGRAM.match(text):
        return False
    return _SPEAKER.search(text) is not None or (_HABIT.search(text) is not None and _TELLS.search(text) is not None)
