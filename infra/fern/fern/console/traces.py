"""Keeps the newest traces in memory. They are lost when the console ends."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from fern.console.otlp import EVENT, LABOUR, Span

MOST_TRACES = 300
MOST_SPANS = 500  # of a trace; further ones are counted
MOST_LISTED = 20


@dataclass(slots=True)
class Trace:
    """`labours` and `events` are the ids that its spans have. `dropped` counts the spans beyond `MOST_SPANS`."""

    id: str
    spans: dict[str, Span] = field(default_factory=dict)
    labours: set[str] = field(default_factory=set)
    events: set[str] = field(default_factory=set)
    dropped: int = 0

    def add(self, span: Span) -> None:
        """Add a span, or replace the one with its id: an exporter that got no answer sends a span again."""
        if span.span_id not in self.spans and len(self.spans) >= MOST_SPANS:
            self.dropped += 1
            return
        self.spans[span.span_id] = span
        for ids, name in ((self.labours, LABOUR), (self.events, EVENT)):
            if name in span.attributes:
                ids.add(str(span.attributes[name]))


class Traces:
    """Keeps the `MOST_TRACES` traces to which a span was added last. Traces without an event, such as of reads, are dropped
    first. A late span is added to its trace.
    """

    def __init__(self) -> None:
        self.received = 0
        self._traces: OrderedDict[str, Trace] = OrderedDict()

    def add(self, spans: Iterable[Span]) -> None:
        for span in spans:
            self.received += 1
            trace = self._traces.setdefault(span.trace_id, Trace(span.trace_id))
            trace.add(span)
            self._traces.move_to_end(span.trace_id)
        while len(self._traces) > MOST_TRACES:
            without_event = (trace.id for trace in self._traces.values() if not trace.events)
            del self._traces[next(without_event, next(iter(self._traces)))]

    def of(self, labour_id: str | None = None, event_id: str | None = None) -> list[dict[str, Any]]:
        """Summaries of the traces about a labour, or about an event, or of all; the newest by their start come first."""
        found = [
            trace
            for trace in self._traces.values()
            if (labour_id is None or labour_id in trace.labours) and (event_id is None or event_id in trace.events)
        ]
        newest = sorted((_summary(trace) for trace in found), key=lambda one: float(one["start_ms"]), reverse=True)
        return newest[:MOST_LISTED]

    def show(self, trace_id: str) -> dict[str, Any] | None:
        """One trace with its spans by start time, and the spans of other traces that have a link to it.

        A batch of many events is a span of one trace with a link to each other one: without these, their waterfalls would have a
        gap where the batch was. Times are milliseconds since the first span.
        """
        trace = self._traces.get(trace_id)
        if trace is None:
            return None
        joined = [
            span
            for other in self._traces.values()
            if other.id != trace_id
            for span in other.spans.values()
            if any(linked == trace_id for linked, _ in span.links)
        ]
        spans = sorted((*trace.spans.values(), *joined), key=lambda span: (span.start, -span.end, span.span_id))
        first = min(span.start for span in trace.spans.values())
        return {
            **_summary(trace),
            "labours": sorted(trace.labours),
            "spans": [self._span(span, first, trace_id) for span in spans],
        }

    def _span(self, span: Span, first: int, trace_id: str) -> dict[str, Any]:
        others = dict.fromkeys(linked for linked, _ in span.links if linked != trace_id)
        shown = {name: value for name, value in asdict(span).items() if name not in ("start", "end", "links")}
        return {
            **shown,
            "start_ms": (span.start - first) / 1e6,
            "duration_ms": (span.end - span.start) / 1e6,
            "is_joined": span.trace_id != trace_id,
            "links": [{"trace_id": linked, "is_kept": linked in self._traces} for linked in others],
        }


def _summary(trace: Trace) -> dict[str, Any]:
    spans = trace.spans.values()
    ids = trace.spans.keys()
    roots = [span for span in spans if span.parent_id not in ids]
    root = min(roots or spans, key=lambda span: span.start)
    start = min(span.start for span in spans)
    return {
        "id": trace.id,
        "name": root.name,
        "start_ms": start / 1e6,
        "duration_ms": (max(span.end for span in spans) - start) / 1e6,
        "count": len(spans),
        "dropped": trace.dropped,
        "failed": sum(span.failed for span in spans),
    }
