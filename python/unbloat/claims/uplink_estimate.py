"""How far off an uplink's throughput is when it is estimated above the modem (QCUT section 4.4).

signal: what a transfer sent in each bin, what was queued in the stages of a phone at its end · model: what the qdisc let go and
what left the modem follow from both, where nothing is dropped; an application that always has more writes as Linux lets
it, once a third of the socket buffer is free · action: root mean square of the relative error at one layer.
"""

from __future__ import annotations

from unbloat.run.figures import Figures

# Payload of a full segment and its packet on the IP layer: transfers are counted without headers.
SEGMENT, PACKET = 1448, 1500
# Linux `sk_stream_write_space`: writers are woken when so much of the socket buffer is free.
FREE = 1 / 3
# An error of less: the layer as good as stood still. Figure 10's curves are steep at -100 % and flat from there on.
SILENT = -0.9


def estimate_error(figures: Figures, link: str, layer: str) -> float | None:
    """Root mean square of the relative error; `layer` is `application`, `tcp` or `qdisc`."""
    errors = relative_errors(figures, link, layer)
    return float((sum(error**2 for error in errors) / len(errors)) ** 0.5) if errors else None


def estimate_silent(figures: Figures, link: str, layer: str) -> float | None:
    """Share of the bins in which a layer handed over less than a tenth of what left the modem."""
    errors = relative_errors(figures, link, layer)
    return sum(error < SILENT for error in errors) / len(errors) if errors else None


def relative_errors(figures: Figures, link: str, layer: str) -> list[float]:
    """Of the first transfer, over bins after the warm-up in which anything left the modem."""
    ids = {row["id"] for row in figures.flows(figures.transfers[0])}
    rows = [
        row
        for row in figures.run.samples().to_pylist()
        if row["flow"] in ids and row["sent_bytes"] is not None
    ]
    queued = {
        (row["stage"], round(row["t_s"], 3)): row["bytes"]
        for row in figures.run.queues.to_pylist()
        if row["link"] == link
    }
    buffer = max((row["in_flight_bytes"] for row in rows), default=0)
    before = {"qdisc": 0, "firmware": 0}
    written, acked = 0.0, 0.0
    errors: list[float] = []
    for row in sorted(rows, key=lambda row: float(row["t_s"])):
        sent = row["sent_bytes"] * PACKET / SEGMENT
        after = {stage: queued.get((stage, round(row["t_s"], 3)), 0) for stage in before}
        passed = sent - (after["qdisc"] - before["qdisc"])
        left = passed - (after["firmware"] - before["firmware"])
        before = after
        acked += row["delivered_bytes"]
        free = acked + buffer - written
        wrote = free if free >= buffer * FREE else 0.0
        written += wrote
        estimate = {"application": wrote * PACKET / SEGMENT, "tcp": sent, "qdisc": passed}[layer]
        if row["t_s"] >= figures.warmup_s and left > 0:
            errors.append(estimate / left - 1)
    return errors
