/* Parses a TCP segment at a device: addresses, sequence numbers, window, and the options that
 * matter here.
 *
 * Accepted: Ethernet or no link layer, up to two VLAN tags, IPv4 or IPv6, TCP. A packet that is
 * truncated, a fragment, encapsulated otherwise or inconsistent is refused and then passes
 * unchanged.
 */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#define IP_OFFSET_OR_MORE 0x3fff
#define OPTIONS_MAX 40
#define EXTENSIONS_MAX 4

/* RFC 9293 section 3.2, RFC 7323, RFC 2385, RFC 5925, RFC 8684. */
enum { OPTION_END, OPTION_NOP, OPTION_MSS, OPTION_SCALE, OPTION_TIMESTAMPS = 8, OPTION_MD5 = 19, OPTION_AO = 29, OPTION_MPTCP = 30 };

/* Seen from the device: inside is this host and the hosts that send through it, outside is beyond.
 * Network byte order; IPv4 as ::ffff:a.b.c.d. */
struct flow_key {
	__u32 inside[4], outside[4];
	__u16 inside_port, outside_port;
	__u32 vlan;
};

struct segment {
	/* Offset of the TCP header in the packet, bytes. */
	__u32 tcp;
	__u32 payload;
	__u32 seq, ack, tsval, tsecr;
	/* As it is in the packet: network byte order, not scaled. */
	__be16 window;
	__u16 mss;
	__u8 syn, fin, rst, acks;
	__u8 stamped;
	/* Shift count of the Window Scale option plus one; 0: the option is absent. */
	__u8 wscale;
	/* The window is signed (RFC 2385, RFC 5925) or has another meaning (MPTCP, RFC 8684 section
	 * 3.3.1): it must not be changed. */
	__u8 excluded;
	__u8 pad;
};

static __always_inline __u32 word(const __u8 *at)
{
	return (__u32)at[0] << 24 | (__u32)at[1] << 16 | (__u32)at[2] << 8 | at[3];
}

/* Options, padded to twice their maximum of 40 bytes: the verifier then accepts every index without
 * further checks. */
/* Reads the options byte by byte instead of option by option, because the verifier then knows every
 * index. */
struct option_bytes {
	__u8 byte[80];
};

/* Functions that are not static are verified once, by themselves, which keeps the verifier's work
 * small. Before Linux 5.12 such functions take no pointers but numbers only, and 6.12 refuses
 * acks.bpf.c with pointers after a million instructions. So the structs are passed in a map. */
struct scratch {
	struct flow_key key;
	struct segment segment;
	struct option_bytes options;
};

/* Programs at a device do not interrupt each other on one processor. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline struct scratch *scratch_now(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

static __always_inline int read_options(struct option_bytes *from, struct segment *s, __u32 bytes)
{
	__u32 next = 0;

#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < OPTIONS_MAX; i++) {
		const __u8 *option = from->byte + i;
		__u32 size;

		if (i >= bytes)
			return 0;
		if (i != next)
			continue;
		if (option[0] == OPTION_END)
			return 0;
		if (option[0] == OPTION_NOP) {
			next = i + 1;
			continue;
		}
		size = option[1];
		if (size < 2 || i + size > bytes)
			return -1;
		switch (option[0]) {
		case OPTION_MSS:
			if (size == 4)
				s->mss = (__u16)option[2] << 8 | option[3];
			break;
		case OPTION_SCALE:
			/* RFC 7323 section 2.3: more than 14 counts as 14. */
			if (size == 3)
				s->wscale = (option[2] > 14 ? 14 : option[2]) + 1;
			break;
		case OPTION_TIMESTAMPS:
			if (size == 10) {
				s->stamped = 1;
				s->tsval = word(option + 2);
				s->tsecr = word(option + 6);
			}
			break;
		case OPTION_MD5:
		case OPTION_AO:
		case OPTION_MPTCP:
			s->excluded = 1;
			break;
		}
		next = i + size;
	}
	return 0;
}

__attribute__((noinline)) int segment_options(__u32 bytes)
{
	struct scratch *at = scratch_now();

	return at ? read_options(&at->options, &at->segment, bytes) : -1;
}

static __always_inline int read_segment(struct __sk_buff *skb, __u32 link, __u32 out, struct flow_key *key, struct segment *s,
					struct option_bytes *from)
{
	__u32 *source, *to;
	__u32 at = link, end, header;
	struct tcphdr tcp;
	__u64 options;
	__u8 version;

	source = out ? key->inside : key->outside;
	to = out ? key->outside : key->inside;
	if (skb->vlan_present)
		key->vlan = skb->vlan_tci & 0xfff;
	if (link) {
		__be16 kind;

		if (bpf_skb_load_bytes(skb, link - 2, &kind, sizeof(kind)))
			return -1;
		for (int i = 0; i < 2; i++) {
			__be16 tag[2];

			if (kind != bpf_htons(ETH_P_8021Q) && kind != bpf_htons(ETH_P_8021AD))
				break;
			if (bpf_skb_load_bytes(skb, at, tag, sizeof(tag)))
				return -1;
			key->vlan = key->vlan << 12 | (bpf_ntohs(tag[0]) & 0xfff);
			kind = tag[1];
			at += sizeof(tag);
		}
		if (kind != bpf_htons(ETH_P_IP) && kind != bpf_htons(ETH_P_IPV6))
			return -1;
	}
	if (bpf_skb_load_bytes(skb, at, &version, 1))
		return -1;
	if (version >> 4 == 4) {
		struct iphdr ip;

		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.ihl < 5 || ip.protocol != IPPROTO_TCP)
			return -1;
		if (ip.frag_off & bpf_htons(IP_OFFSET_OR_MORE))
			return -1;
		/* GSO packets beyond 64 KB (BIG TCP) have no length in the header. */
		end = ip.tot_len ? at + bpf_ntohs(ip.tot_len) : skb->len;
		s->tcp = at + ip.ihl * 4;
		source[2] = to[2] = bpf_htonl(0xffff);
		source[3] = ip.saddr;
		to[3] = ip.daddr;
	} else if (version >> 4 == 6) {
		struct ipv6hdr ip;
		__u8 next;

		if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
			return -1;
		end = ip.payload_len ? at + sizeof(ip) + bpf_ntohs(ip.payload_len) : skb->len;
		s->tcp = at + sizeof(ip);
		next = ip.nexthdr;
		/* Hop-by-hop and destination options are skipped; routing headers and fragments are
		 * refused. */
		for (int i = 0; i < EXTENSIONS_MAX; i++) {
			__u8 head[2];

			if (next != IPPROTO_HOPOPTS && next != IPPROTO_DSTOPTS)
				break;
			if (bpf_skb_load_bytes(skb, s->tcp, head, sizeof(head)))
				return -1;
			next = head[0];
			s->tcp += (head[1] + 1) * 8;
		}
		if (next != IPPROTO_TCP)
			return -1;
		__builtin_memcpy(source, &ip.saddr, 16);
		__builtin_memcpy(to, &ip.daddr, 16);
	} else {
		return -1;
	}
	if (end > skb->len || bpf_skb_load_bytes(skb, s->tcp, &tcp, sizeof(tcp)))
		return -1;
	header = tcp.doff * 4;
	if (tcp.doff < 5 || s->tcp + header > end)
		return -1;
	key->inside_port = out ? tcp.source : tcp.dest;
	key->outside_port = out ? tcp.dest : tcp.source;
	s->payload = end - s->tcp - header;
	s->seq = bpf_ntohl(tcp.seq);
	s->ack = bpf_ntohl(tcp.ack_seq);
	s->window = tcp.window;
	s->syn = tcp.syn;
	s->fin = tcp.fin;
	s->rst = tcp.rst;
	s->acks = tcp.ack;
	/* Verifiers before Linux 6.8 learn nothing of a register from `== 0`, and must see that the
	 * length is not zero: so it is compared with 4, of which it is a multiple. 64 bits wide, so
	 * that the register compared is the one that is passed. */
	options = header - sizeof(tcp);
	barrier_var(options);
	if (options < 4)
		return 0;
	if (options > OPTIONS_MAX || bpf_skb_load_bytes(skb, s->tcp + sizeof(tcp), from->byte, options))
		return -1;
	header = options;
	/* The usual case: timestamps in the layout of RFC 7323 appendix A and nothing else. */
	if (header == 12 && word(from->byte) == 0x0101080a) {
		s->stamped = 1;
		s->tsval = word(from->byte + 4);
		s->tsecr = word(from->byte + 8);
		return 0;
	}
	return segment_options(header);
}

/* Fills in `key` and `s`. `link` bytes lie before the network header; `out`: the packet leaves
 * towards outside. 0: a TCP segment that can be handled. */
__attribute__((noinline)) int segment_read_alone(struct __sk_buff *skb, __u32 link, __u32 out)
{
	struct scratch *at = scratch_now();

	if (!at)
		return -1;
	__builtin_memset(at, 0, sizeof(*at));
	return read_segment(skb, link, out, &at->key, &at->segment, &at->options);
}

static __always_inline int segment_read(struct __sk_buff *skb, __u32 link, __u32 out, struct flow_key *key, struct segment *s)
{
	int failed = segment_read_alone(skb, link, out);
	struct scratch *at = scratch_now();

	if (failed || !at)
		return -1;
	*key = at->key;
	*s = at->segment;
	return 0;
}
