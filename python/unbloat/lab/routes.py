"""Which way packets go: the fewest hops, links in the order of the file, as in the simulator.

The simulator finds the way of a packet at its source; in the lab every node forwards by destination alone. Where two ways
are equally short the two may differ: such a plan is refused.
"""

from __future__ import annotations

from collections import deque

from unbloat.lab.stacks import Plan


def path(plan: Plan, start: int, end: int) -> list[int] | None:
    """The links from one node to another; None where there is no way."""
    came: dict[int, tuple[int, int]] = {}
    waiting = deque([start])
    while waiting and end not in came:
        node = waiting.popleft()
        for number, link in enumerate(plan["links"]):
            if link["from"] == node and link["to"] != start and link["to"] not in came:
                came[link["to"]] = (node, number)
                waiting.append(link["to"])
    links: list[int] = []
    node = end
    while node in came:
        node, number = came[node]
        links.append(number)
    return links[::-1] if links else None


def first_links(plan: Plan, node: int) -> dict[int, int]:
    """For every other node that can be reached, the link by which packets leave."""
    found = {}
    for other in range(len(plan["nodes"])):
        way = None if other == node else path(plan, node, other)
        if way is not None:
            found[other] = way[0]
    return found


def ambiguous(plan: Plan) -> list[str]:
    """Pairs of ends whose packets would go another way than in the simulator."""
    ends = {(one["from"], one["to"]) for one in [*plan["flows"], *plan["probes"]]}
    found = []
    for start, end in sorted(ends | {(end, start) for start, end in ends}):
        wanted = path(plan, start, end)
        if wanted is None:
            continue
        taken: list[int] = []
        node = start
        while node != end and len(taken) <= len(plan["nodes"]):
            way = path(plan, node, end)
            if way is None:
                break
            taken.append(way[0])
            node = plan["links"][way[0]]["to"]
        if taken != wanted:
            names = plan["nodes"][start]["name"], plan["nodes"][end]["name"]
            found.append(
                f"from {names[0]} to {names[1]}: two ways are equally short, and routes by destination cannot choose"
            )
    return found
