"""Which way packets go: the fewest hops, links in the order of the file, as in the simulator.

The simulator finds the way of a packet at its source; in the lab every node forwards by destination alone. Both come to the
same: breadth first finds, of the shortest ways, the first in the order of links at every node, and what remains of such a
way behind any node is the first from there.
"""

from __future__ import annotations

from collections import deque

from unbloat.lab.setup.tcp_settings import Plan


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
