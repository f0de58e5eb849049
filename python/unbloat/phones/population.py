"""What phones do: the parameters of a population, in one table each, and how each was found.

`PAPER` is fitted to the read-offs of QCUT's study of traffic (IMC 2016, section 3; `unbloat.corpus.report.paper`). *Read*
means that the law has the paper's own quantiles, *fitted* that it was changed by hand until the curves of phones of seeds 1 to
9 came near the figure. Only what is fitted, and what follows from several laws, says something about the model.
`PLAIN` is a population that nothing was fitted to: the control, which must not look like the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass

from unbloat.phones.law import Law, always, law, log_normal

# Sizes that make a transfer of its own, and the classes of QCUT's figures 2 and 3b; bytes.
BULK_BYTES, MIDDLE_BYTES, LARGE_BYTES = 100_000, 1_000_000, 10_000_000
# Sessions that have more bytes than 80 % of all, of which QCUT states upload's share by itself.
LARGEST = 0.8


@dataclass(frozen=True)
class Population:
    """How sessions of a phone are drawn. Laws of transfers have three entries: below 1 MB, below 10 MB, above."""

    sessions_per_hour: float
    session_bytes: Law
    """Payload of a session, both ways."""
    upload_share_small: Law
    """Upload's share of the bytes of a session that is not among the largest 20 %."""
    upload_share_large: Law
    """Of one that is, below 100 KB."""
    upload_sessions: tuple[float, float, float]
    """Share of the sessions from 100 KB on that are uploads."""
    upload_bytes: tuple[Law, Law, Law]
    """Bytes of such an upload, within the class in which the session's bytes lie."""
    upload_share_upload: Law
    """Upload's share of the bytes of those sessions."""
    upload_share_download: tuple[Law, Law]
    """Upload's share in the others, below 1 MB and above."""
    uploads_alike: float
    """Share of the uploads whose size and duration have the same rank, so that their rates are alike."""
    upload_s: tuple[Law, Law, Law]
    """How long the link takes for an upload of 100 KB and more, if nothing is lost."""
    upload_queue_ms: tuple[Law, Law, Law]
    """How long a full queue of that link lasts."""
    uploads_paced: tuple[float, float, float]
    """Share of the uploads that the application sends at that rate, over a link that is ten times as fast."""
    download_s: tuple[Law, Law, Law]
    """How long a download of 100 KB and more takes."""
    slow_downloads: float
    """Share of the sessions with 20 to 100 KB down that get them as one slow download, as long as a trickle."""
    base_ms: Law
    """Round trip of the empty path, per phone."""
    rise_ms: Law
    """What a request of a small connection waits in queues on its way."""
    rise_long_ms: Law
    """The same of a request of more than 5 KB."""
    ack_ms: tuple[Law, Law, Law]
    """From data that came down to its ACK on the phone: below 5 KB up in that second, up to 100 KB, above."""
    connections: Law
    """Connections that begin together, of sessions of more than 1.5 KB; rounded down."""
    exchange_bytes: float
    """Bytes of a request and its answer, both together, in the mean."""
    pause_s: Law
    """From an answer to the next request on a connection."""
    trickles: float
    """Share of the sessions of 1.5 to 100 KB whose uploads are a trickle: a message every second or so, without a pause."""
    trickle_s: Law
    """How long one lasts."""
    trickle_answers: float
    """Share of the trickles whose messages are answered one by one."""


PAPER = Population(
    # Not stated: it decides the number of values alone. A phone in use day and night.
    sessions_per_hour=6.0,
    # Read: figure 1, `both`. The ends, and the points between the 95th and the 99th percentile and above, are fitted to the
    # curves by size and to figure 3a. 226 MB is the largest upload of the text; 60 MB here, and 80 MB of uploads, keep a
    # corpus small.
    session_bytes=law(
        (0.0, 120.0),
        (0.5, 1_060.0),
        (0.75, 14_200.0),
        (0.9, 65_900.0),
        (0.95, 217_000.0),
        (0.975, 1_000_000.0),
        (0.985, 2_600_000.0),
        (0.99, 5_330_000.0),
        (0.9965, 10_000_000.0),
        (1.0, 60_000_000.0),
    ),
    # Fitted: quartiles of upload's share in the text of section 3, of all sessions and of the largest fifth.
    upload_share_small=law(
        (0.0, 0.05), (0.25, 0.27), (0.4, 0.50), (0.7, 0.56), (0.9, 0.62), (1.0, 0.95)
    ),
    upload_share_large=law((0.0, 0.04), (0.25, 0.13), (0.5, 0.27), (0.75, 0.5), (1.0, 0.9)),
    # Fitted: figure 1, 0.4 % of the sessions upload more than 1 MB, 2.2 % download as much.
    upload_sessions=(0.19, 0.22, 0.25),
    # Fitted: figure 3b, the rates by size, with the durations of figure 2 and the share that is alike.
    upload_bytes=(
        law((0.0, 1.1e5), (0.4, 1.4e5), (0.62, 2.2e5), (0.75, 3.2e5), (0.9, 6.0e5), (1.0, 9.0e5)),
        law((0.0, 1.2e6), (0.25, 2.5e6), (0.5, 4.3e6), (0.75, 6.2e6), (0.9, 8.4e6), (1.0, 9.4e6)),
        law((0.0, 1.1e7), (0.25, 1.3e7), (0.5, 1.8e7), (0.75, 3.6e7), (1.0, 8.0e7)),
    ),
    # Fitted: figure 1, upload and download apart, and the largest fifth of the text.
    upload_share_upload=log_normal(0.93, 0.02),
    upload_share_download=(
        law((0.0, 0.03), (0.25, 0.07), (0.5, 0.12), (0.75, 0.2), (1.0, 0.3)),
        law((0.0, 0.003), (0.5, 0.012), (1.0, 0.05)),
    ),
    uploads_alike=0.4,
    # Read: figure 2; the ends are free.
    upload_s=(
        law((0.0, 0.15), (0.25, 0.61), (0.5, 1.91), (0.75, 5.55), (0.9, 13.5), (1.0, 20.0)),
        law((0.0, 4.0), (0.25, 8.4), (0.5, 13.9), (0.75, 16.8), (0.9, 28.0), (1.0, 60.0)),
        law((0.0, 38.0), (0.25, 46.6), (0.5, 61.4), (0.75, 148.0), (0.9, 307.0), (1.0, 400.0)),
    ),
    # Fitted: figure 4a, 5 to 100 KB up by the first, above by the others.
    upload_queue_ms=(log_normal(350.0, 1.6), log_normal(330.0, 1.4), log_normal(330.0, 1.4)),
    uploads_paced=(0.75, 0.12, 0.12),
    # Read: figure 2; the ends are free.
    download_s=(
        law((0.0, 0.15), (0.25, 0.42), (0.5, 0.67), (0.75, 1.31), (0.9, 3.1), (1.0, 20.0)),
        law((0.0, 0.8), (0.25, 2.2), (0.5, 5.3), (0.75, 15.2), (0.9, 32.0), (1.0, 80.0)),
        law((0.0, 5.0), (0.25, 10.2), (0.5, 18.5), (0.75, 55.0), (0.9, 99.0), (1.0, 200.0)),
    ),
    # Fitted: figure 3a, download.
    slow_downloads=0.017,
    # Not stated: 50 ms as in the simulator's scenarios of LTE. No curve depends on it.
    base_ms=log_normal(50.0, 0.2),
    # Fitted: figure 4a, below 5 KB up; a flow's smallest round trip is part of it.
    rise_ms=law(
        (0.0, 2.0), (0.35, 22.0), (0.71, 53.0), (0.885, 200.0), (0.94, 300.0), (1.0, 900.0)
    ),
    # Fitted: figure 4a, 5 to 100 KB up.
    rise_long_ms=law((0.0, 2.0), (0.45, 8.0), (0.68, 40.0), (0.76, 600.0), (1.0, 2500.0)),
    # Read: figure 4b; below its first points, the 90th and 95th percentile, and above its last ones the laws are free.
    ack_ms=(
        law((0.0, 0.1), (0.5, 1.0), (0.9, 14.0), (0.95, 27.0), (0.99, 61.0), (1.0, 150.0)),
        law((0.0, 0.1), (0.5, 1.0), (0.95, 14.0), (0.99, 34.0), (1.0, 100.0)),
        law((0.0, 0.1), (0.5, 1.0), (0.9, 21.0), (0.95, 126.0), (0.99, 797.0), (1.0, 2000.0)),
    ),
    # Fitted, all three: figure 5.
    connections=law((0.0, 1.0), (0.15, 2.0), (0.3, 4.0), (0.5, 7.0), (0.8, 12.0), (1.0, 24.0)),
    exchange_bytes=1_000.0,
    pause_s=law((0.0, 0.1), (0.4, 0.8), (0.4001, 1.3), (1.0, 8.0)),
    # Fitted, all three: the lower half of figure 3a, in both directions.
    trickles=0.03,
    trickle_s=log_normal(7.0, 0.4),
    trickle_answers=0.2,
)
PLAIN = Population(
    sessions_per_hour=6.0,
    # One log-normal law for everything that the paper has a curve of, with round numbers.
    session_bytes=log_normal(100_000.0, 1.8),
    upload_share_small=law((0.0, 0.05), (1.0, 0.3)),
    upload_share_large=law((0.0, 0.05), (1.0, 0.3)),
    upload_sessions=(0.5, 0.5, 0.5),
    upload_bytes=(always(2e5), always(2e6), always(2e7)),
    upload_share_upload=always(0.9),
    upload_share_download=(always(0.3), always(0.3)),
    uploads_alike=0.0,
    upload_s=(always(4.0), always(4.0), always(20.0)),
    upload_queue_ms=(always(60.0),) * 3,
    uploads_paced=(0.0, 0.0, 0.0),
    download_s=(always(0.2), always(1.0), always(5.0)),
    slow_downloads=0.0,
    base_ms=log_normal(50.0, 0.2),
    rise_ms=always(5.0),
    rise_long_ms=always(5.0),
    # Every ACK is a delayed ACK of Linux (TCP_DELACK_MIN).
    ack_ms=(always(40.0),) * 3,
    connections=always(6.0),
    exchange_bytes=3_000.0,
    pause_s=law((0.0, 0.1), (0.8, 0.8), (0.8001, 1.3), (1.0, 8.0)),
    trickles=0.3,
    trickle_s=always(4.0),
    trickle_answers=1.0,
)
POPULATIONS = {"paper": PAPER, "plain": PLAIN}
