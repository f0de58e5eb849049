"""The link types that crate `capture` decodes, for `unbloat list`; a test holds this table against the decoder's source.

Names are those of the LINKTYPE_ registry of tcpdump.org.
"""

from __future__ import annotations

# number, name, what it is
LINKTYPES: tuple[tuple[int, str, str], ...] = (
    (0, "NULL", "BSD loopback"),
    (1, "ETHERNET", "Ethernet, through VLAN tags of any depth, MPLS, PPPoE"),
    (6, "IEEE802_5", "Token Ring"),
    (9, "PPP", "PPP"),
    (10, "FDDI", "FDDI"),
    (12, "RAW", "IP without a link layer: TUN devices, rmnet (number of some systems)"),
    (14, "RAW", "IP without a link layer (number of OpenBSD)"),
    (50, "PPP_HDLC", "PPP in HDLC framing"),
    (51, "PPP_ETHER", "PPPoE session without its Ethernet header"),
    (100, "ATM_RFC1483", "LLC over ATM"),
    (101, "RAW", "IP without a link layer: TUN devices, rmnet"),
    (104, "C_HDLC", "Cisco HDLC"),
    (105, "IEEE802_11", "802.11 data frames"),
    (106, "ATM_CLIP", "IP over ATM"),
    (108, "LOOP", "OpenBSD loopback"),
    (109, "ENC", "OpenBSD IPsec interface"),
    (113, "LINUX_SLL", "Linux cooked capture, version 1"),
    (117, "PFLOG", "OpenBSD packet filter log"),
    (119, "IEEE802_11_PRISM", "802.11 behind a Prism header"),
    (127, "IEEE802_11_RADIOTAP", "802.11 behind a radiotap header"),
    (149, "PKTAP", "Apple's packet tap (number in older captures)"),
    (163, "IEEE802_11_AVS", "802.11 behind an AVS header"),
    (166, "PPP_PPPD", "PPP with a direction, as pppd writes it"),
    (192, "PPI", "per-packet information in front of another link type"),
    (204, "PPP_WITH_DIR", "PPP with a direction"),
    (228, "IPV4", "IPv4"),
    (229, "IPV6", "IPv6"),
    (239, "NFLOG", "Linux netfilter log"),
    (258, "PKTAP", "Apple's packet tap"),
    (276, "LINUX_SLL2", "Linux cooked capture, version 2: tcpdump -i any"),
)
