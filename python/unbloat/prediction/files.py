"""The links of a prediction as files that `unbloat sim`, `unbloat lab` and mahimahi run.

signal: a `WhatIf` · model: the link whose replay is nearest to the capture, and all that were kept · action: `scenario.toml` (the transfer
as it was), `cures/NAME.toml` (the same with a cure), `draws/NN.toml` (every link that was kept), and the rate as `up.trace` or
`down.trace`
"""

from __future__ import annotations

from pathlib import Path

from unbloat.link.trace import in_comment, trace_text
from unbloat.prediction.cures import AS_IT_WAS, Cure
from unbloat.prediction.draws import Draw
from unbloat.prediction.predict import WhatIf
from unbloat.prediction.replay import scenario, way_of
from unbloat.text.format import plural

HEAD = """\
# {what}: `unbloat what-if` of {capture}, connection {connection}.
# {links}
"""
NEAREST = "The link whose replay is nearest to the capture, of {count}; those of draws/ explain it as well."
ONE_OF = "Number {number} of {count} links that explain the capture."


def write_links(found: WhatIf, folder: Path) -> None:
    """Writes them; the folder may be there."""
    way = way_of(found.fitted)
    [nearest] = found.nearest(1)
    count = len(found.links)
    (folder / "cures").mkdir(parents=True, exist_ok=True)
    (folder / "draws").mkdir(exist_ok=True)

    def write(path: Path, draw: Draw, cure: Cure, links: str) -> None:
        head = HEAD.format(
            what=cure.name,
            capture=in_comment(found.fitted),
            connection=found.fitted.connection["id"],
            links=links,
        )
        path.write_text(head + scenario((draw, cure), way), encoding="utf-8")

    why = NEAREST.format(count=count)
    write(folder / "scenario.toml", nearest, AS_IT_WAS, why)
    for one in found.cures:
        write(folder / "cures" / f"{one.cure.name}.toml", nearest, one.cure, why)
    digits = len(str(count))
    for number, draw in enumerate(found.links, 1):
        path = folder / "draws" / f"{number:0{digits}}.toml"
        write(path, draw, AS_IT_WAS, ONE_OF.format(number=number, count=count))
    (folder / f"{way}.trace").write_text(trace_text(nearest.rates_bps, nearest.slot_s))


def written_text(found: WhatIf) -> str:
    """What a folder holds."""
    cures, draws = plural(len(found.cures), "cure"), plural(len(found.links), "draw")
    return f"scenario.toml, {way_of(found.fitted)}.trace, {cures} and {draws}"
