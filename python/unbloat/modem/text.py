"""A modem's log in words: how it was laid under the capture, its buffer, its throughput and the estimates above it."""

from __future__ import annotations

from unbloat.run.tables import RunTables
from unbloat.text.format import byte_text, ms_text, rate_text, share_text

# Words of each layer, from the application down.
LAYERS = {
    "application": "bytes acknowledged",
    "tcp": "TCP payload with retransmissions",
    "captured": "packets captured",
}


def modem_texts(run: RunTables) -> list[str]:
    """Paragraphs; none without a log."""
    if "modem_log" not in run.info or not run.modem:
        return []
    info = run.info
    skew = info.get("modem_skew_ppm")
    drift = "" if skew is None else f", {skew:+.0f} ppm"
    texts = [
        f"Modem log {info['modem_log']}: the capture's clock less the modem's is {info['modem_offset_s']:,.3f} s"
        f" ± {ms_text(info['modem_offset_uncertainty_ms'])}{drift}. The packets explain"
        f" {share_text(info['modem_explained'])} of what entered its buffer."
    ]
    sizes = sorted(run.modem["modem_buffer"]["bytes"].to_pylist())
    if sizes:
        p50, p95 = (sizes[min(int(share * len(sizes)), len(sizes) - 1)] for share in (0.5, 0.95))
        texts.append(
            f"The modem's buffer had {byte_text(p50)} p50, {byte_text(p95)} p95, {byte_text(sizes[-1])} at most"
            f"{throughput_text(run)}."
        )
    errors = {layer: info.get(f"modem_{layer}_error") for layer in LAYERS}
    if all(error is not None for error in errors.values()):
        parts = [f"{share_text(errors[layer])} by {words}" for layer, words in LAYERS.items()]
        texts.append(
            "Estimates of that throughput every 100 ms are off by (root mean square): "
            f"{', '.join(parts)}."
        )
    return texts


def throughput_text(run: RunTables) -> str:
    """What left the buffer."""
    rate = rate_text(run.info.get("modem_throughput_bps"))
    if run.info["modem_layer"] == "phy":
        return f"; it sent {rate}, padding included, by the blocks of the physical layer"
    padding = share_text(run.info.get("modem_padding_share"))
    return f"; grants less padding were {rate}, and {padding} of the grants was padding"
