"""The files that nginx serves: pages of objects in layers, segments of video. All are of their exact size.

A page is a document whose script, at its very end, asks for the objects: those of a layer when all of the layer before
have come, so many at a time as the scenario has connections. Then it hands over the browser's own timings. Where the
scenario's browser computes, the script waits that long before each layer: how long, the machine shall not decide.
"""

from __future__ import annotations

import os
from typing import Any

# What a browser opens to one host with HTTP/1.1.
BROWSER_CONNECTIONS = 6

# `n` objects over `d` layers as the simulator spreads them, `m` at a time. The browser's list of
# timings is made long enough first.
_SCRIPT = """<script>(async()=>{{const n={n},d={d},m={m},c={c},p=performance,f=Math.floor;p.setResourceTimingBufferSize(n+9);\
let e='';try{{for(let l=0;l<d;l++){{const t=[];for(let i=f(n*l/d);i<f(n*(l+1)/d);i++)t.push(i);\
if(c&&t.length)await new Promise(r=>setTimeout(r,c));\
const g=async()=>{{while(t.length)await(await fetch('o'+t.shift())).arrayBuffer()}};\
await Promise.all(Array.from({{length:m}},g))}}}}catch(x){{e=''+x}}\
const j=o=>[o.connectStart,o.connectEnd,o.requestStart,o.responseStart,o.responseEnd,o.decodedBodySize];\
setTimeout(()=>pageDone(JSON.stringify({{e,t:p.timeOrigin,\
a:[...p.getEntriesByType('navigation'),...p.getEntriesByType('resource')].map(j)}})),0)}})()</script>"""
_HEAD = "<!doctype html><link rel=icon href=data:,><!--"
_FOOT = "-->"


def computed_ms(app: dict[str, Any]) -> float:
    """What the browser computes before each layer, and after the last: the simulator's parts."""
    layers = min(max(app["depth"], 1), len(app["objects_bytes"]))
    part: float = app["compute_s"] * 1000 / (layers + 1)
    return part


def document(app: dict[str, Any]) -> str:
    """The document of a page; longer than asked for only where the script alone is longer."""
    script = _SCRIPT.format(
        n=len(app["objects_bytes"]),
        d=max(app["depth"], 1),
        c=round(computed_ms(app), 3),
        m=max(min(app["connections"], BROWSER_CONNECTIONS), 1),
    )
    padding: int = max(app["html_bytes"] - len(_HEAD) - len(_FOOT) - len(script), 0)
    return _HEAD + "x" * padding + _FOOT + script


def segment_bytes(rate_bps: int, segment_s: float) -> int:
    """Size of a video segment; the simulator's rounding."""
    return max(rate_bps * round(segment_s * 1e9) // 8_000_000_000, 1)


def write_site(app: dict[str, Any], root: str) -> list[str]:
    """The files of a web or video flow; what could not be as asked for."""
    os.makedirs(root, exist_ok=True)
    if app["kind"] == "video":
        for rate in app["ladder_bps"]:
            _sparse(f"{root}/r{rate}", segment_bytes(rate, app["segment_s"]))
        return []
    for number, size in enumerate(app["objects_bytes"]):
        _sparse(f"{root}/o{number}", max(size, 1))
    text = document(app)
    with open(f"{root}/page", "w", encoding="ascii") as file:
        file.write(text)
    if len(text) > app["html_bytes"]:
        return [
            f"the document has {len(text)} bytes, not {app['html_bytes']}: its script alone is longer"
        ]
    return []


def _sparse(path: str, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)
