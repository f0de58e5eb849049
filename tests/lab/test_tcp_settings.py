"""What Linux is configured with, and what is refused: from plans alone, without namespaces."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from running import SHORT, plan_of

from unbloat.lab.setup import unsupported
from unbloat.lab.setup.routes import first_links, path
from unbloat.lab.setup.tcp_settings import disagreements, node_sysctls, route_options
from unbloat.lab.setup.unsupported import plan_warnings, unsupported_in_plan

CLIENT, SERVER = 0, 1
OTHER = '[[flow]]\nname = "other"\nfrom = "client"\n'


@pytest.fixture(autouse=True)
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel with three congestion controls."""
    listed = tmp_path / "available"
    listed.write_text("reno cubic bbr\n")
    monkeypatch.setattr(unsupported, "AVAILABLE", listed)


def with_flow(keys: str, receiver: str = "") -> str:
    """The short scenario, its flow with further keys."""
    lines = SHORT.replace('from = "client"\n', f'from = "client"\n{keys}\n')
    return (
        lines.replace("[[probe]]", f"[flow.receiver]\n{receiver}\n[[probe]]") if receiver else lines
    )


def sysctl(text: str, node: int, name: str) -> str:
    """What a node's namespace is configured with."""
    return node_sysctls(plan_of(text), node)[f"net.ipv4.{name}"]


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        ('"autotune"', "4096 131072 33554432"),
        ('{ kind = "autotune", max = "6 MB" }', "4096 131072 6000000"),
        # a ratio of one's own: the buffer that gives the same window at the 160/256 that the kernel measures
        ('{ kind = "autotune", max = "6 MB", ratio = 0.75 }', "4096 131072 7200000"),
        ('{ kind = "autotune", initial = "64 KiB", max = "40 KB" }', "4096 40000 40000"),
    ],
)
def test_autotuning_gets_its_first_and_its_largest_buffer(law: str, expected: str) -> None:
    text = with_flow("", f"window = {law}")
    assert sysctl(text, SERVER, "tcp_rmem") == expected
    assert sysctl(text, CLIENT, "tcp_rmem") == "4096 131072 33554432"


def test_a_fixed_window_is_a_sockets_where_the_socket_is_ours_and_the_namespaces_where_it_is_not() -> (
    None
):
    law = 'window = { kind = "fixed", rmem_max = "110208 B" }'
    assert sysctl(with_flow("", law), SERVER, "tcp_rmem") == "4096 131072 33554432"
    assert sysctl(with_flow('app = "web"', law), SERVER, "tcp_rmem") == "4096 110208 110208"


def test_options_of_tcp_are_switched_at_both_ends() -> None:
    text = with_flow(
        'timestamps = false\nsack = false\necn = true\nslow_start_after_idle = false\nbuffer = "64 KB"'
    )
    for node in (CLIENT, SERVER):
        assert sysctl(text, node, "tcp_timestamps") == "0"
        assert sysctl(text, node, "tcp_sack") == "0"
        assert sysctl(text, node, "tcp_ecn") == "1"
    assert sysctl(text, CLIENT, "tcp_slow_start_after_idle") == "0"
    assert sysctl(text, SERVER, "tcp_slow_start_after_idle") == "1"
    assert sysctl(text, CLIENT, "tcp_wmem") == "4096 16384 81920"


def test_routes_get_initial_window_and_mss_and_the_congestion_control_of_servers() -> None:
    keys = 'initial_window = 3\ncongestion = "newreno"\nmss = "500 B"'
    plan = plan_of(with_flow(keys))
    assert route_options(plan, CLIENT, SERVER) == ["initcwnd", "3", "advmss", "512"]
    assert route_options(plan, SERVER, CLIENT) == ["advmss", "512"]
    plan = plan_of(with_flow(f'{keys}\napp = "web"'))
    assert route_options(plan, CLIENT, SERVER) == [
        "initcwnd",
        "3",
        "congctl",
        "reno",
        "advmss",
        "512",
    ]
    plan = plan_of(SHORT + '[lab]\nbulk = "iperf3"\n')
    assert route_options(plan, CLIENT, SERVER) == ["initcwnd", "10", "congctl", "cubic"]
    assert route_options(plan_of(SHORT), SERVER, CLIENT) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SHORT + OTHER + "sack = false\n", "tcp_sack on client: flow0 wants 1, other wants 0"),
        (
            SHORT + OTHER + "initial_window = 1\n",
            "initial_window from client to server: flow0 wants 10, other wants 1",
        ),
        (
            SHORT + OTHER + '[flow.receiver]\nwindow = { kind = "autotune", max = "1 MB" }\n',
            "tcp_rmem on server: flow0 wants 4096 131072 33554432, other wants 4096 131072 1000000",
        ),
        (
            SHORT
            + OTHER
            + 'app = "web"\ncongestion = "bbr"\n'
            + OTHER.replace("other", "third")
            + 'app = "web"\n',
            "congestion from client to server: other wants bbr, third wants cubic",
        ),
    ],
)
def test_flows_that_share_a_setting_must_agree(text: str, words: str) -> None:
    found = unsupported_in_plan(plan_of(text))
    assert f"{words}; Linux has one value for all of them" in found


def test_flows_of_our_own_sockets_may_differ_in_congestion_control_window_and_mss() -> None:
    text = (
        SHORT
        + OTHER
        + 'congestion = "bbr"\nmss = "500 B"\n[flow.receiver]\nwindow = { kind = "fixed", window = "1 MB" }\n'
    )
    assert disagreements(plan_of(text)) == []
    assert unsupported_in_plan(plan_of(text)) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (with_flow('app = "web"\nclass = 0'), "flow0: class 0: what nginx sends carries none"),
        (
            with_flow('app = "web"\n[flow.receiver]\nack_class = 2'),
            "flow0: ack_class 2: what a browser sends carries none",
        ),
        (
            with_flow('congestion = "vegas"'),
            "flow0: congestion vegas is not in this kernel (it has reno, cubic, bbr)",
        ),
        (
            with_flow('congestion = { kind = "cubic", beta = 0.5 }'),
            "flow0: congestion.beta = 0.5: this kernel's cubic has no setting for it",
        ),
        (
            with_flow('congestion = { kind = "cubic", hystart = "off" }'),
            "flow0: congestion.hystart off: it is on in this kernel's cubic, for all connections",
        ),
        (
            with_flow("", 'window = "rledbat"'),
            "flow0: window rledbat is no law of a stock kernel, nor of unbloat-agent (fixed, autotune and drwa are)",
        ),
        (
            with_flow('mss = "1460 B"'),
            "flow0: mss 1460 does not fit the TUN devices' MTU of 1500 bytes",
        ),
        (
            with_flow('pacing = true\napp = "web"'),
            "flow0: pacing of nginx needs the queue discipline fq, which the lab does not have",
        ),
        (
            with_flow("", 'window_update = "segment"'),
            "flow0: window_update segment: Linux sends window updates by its own rule",
        ),
        (
            with_flow("", "ack_every = 4"),
            "flow0: ack_every 4: Linux acknowledges every 2 segments, or each",
        ),
        (with_flow("", 'ack_delay = "10 ms"'), "flow0: ack_delay 10 ms: Linux waits 40 ms"),
        (
            SHORT + '[device]\nwindow = "rledbat"\n',
            "client: window rledbat is no law of a stock kernel, nor of unbloat-agent (fixed, autotune and drwa are)",
        ),
        (
            SHORT + '[[change]]\nat = "1 s"\n"flow.0.receiver.window" = "drwa"\n',
            "at 1 s: flow0: window drwa of unbloat-agent holds from beginning to end",
        ),
        (
            SHORT.replace('from = "client"', 'from = "client"\napp = "web"')
            + '[[change]]\nat = "1 s"\n"flow.0.congestion" = "bbr"\n',
            "at 1 s: flow0: congestion of a live connection of nginx cannot be changed",
        ),
    ],
)
def test_what_a_stock_kernel_cannot_do_is_said_with_its_key(text: str, words: str) -> None:
    assert words in unsupported_in_plan(plan_of(text))


def test_the_kernels_own_rules_of_cubic_are_supported() -> None:
    for congestion in (
        '"cubic"',
        '{ kind = "cubic", rules = "linux", hystart = "linux" }',
        '"newreno"',
        '"bbr"',
    ):
        assert unsupported_in_plan(plan_of(with_flow(f"congestion = {congestion}"))) == []


def test_small_queues_have_no_effect_and_that_is_said() -> None:
    text = SHORT + "[device]\n"
    assert len(plan_warnings(plan_of(text))) == 1
    assert plan_warnings(plan_of(SHORT)) == []
    assert (
        plan_warnings(
            plan_of(text.replace('from = "client"\n', 'from = "client"\ntsq = false\n', 1))
        )
        == []
    )


def links(*pairs: str) -> str:
    """Nodes a, b, … and links between them."""
    names = sorted({name for pair in pairs for name in pair})
    nodes = ", ".join(f'{{ name = "{name}" }}' for name in names)
    text = f'node = [{nodes}]\n[[probe]]\nfrom = "{names[0]}"\nto = "{names[-1]}"\n'
    for one, other in [*pairs, *((pair[1], pair[0]) for pair in pairs)]:
        text += f'[[link]]\nname = "{one}{other}"\nfrom = "{one}"\nto = "{other}"\nrate = "1 Mbit/s"\ndelay = "1 ms"\n'
    return text


def test_the_fewest_hops_are_taken_links_in_the_order_of_the_file() -> None:
    plan = plan_of(links("ab", "bc", "cd", "bd"))
    assert [plan["links"][number]["name"] for number in path(plan, 0, 3) or ()] == ["ab", "bd"]
    assert {
        other: plan["links"][number]["name"] for other, number in first_links(plan, 0).items()
    } == {
        1: "ab",
        2: "ab",
        3: "ab",
    }


def test_routers_that_know_the_destination_alone_send_packets_the_way_that_their_source_would() -> (
    None
):
    rng = random.Random(1)
    pairs = [one + other for one, other in itertools.combinations("abcdefg", 2)]
    several = 0
    for _ in range(200):
        plan = plan_of(links(*rng.sample(pairs, 10)))
        for start, end in itertools.permutations(range(len(plan["nodes"])), 2):
            wanted = path(plan, start, end)
            if wanted is None:
                continue
            node, taken = start, list[int]()
            while node != end and len(taken) < len(wanted):
                taken.append(first_links(plan, node)[end])
                node = plan["links"][taken[-1]]["to"]
            assert taken == wanted
            several += len(wanted) > 2
    assert several > 100
