/* DRWA on sockets: structs, maps, and how a socket is restored; shared by the programs that touch
 * sockets.
 *
 * The maps are pinned by their names, so that a restarted agent finds what the one before it left.
 * So the names of pinned maps stay the same from version to version. The layout of the structs is
 * part of the pins' path (LAYOUT in src/kernel/socket_walk.rs): change both together.
 */
#pragma once
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "receiving.h"

#define SOL_TCP 6
#define TCP_WINDOW_CLAMP 10
#define TCP_CONGESTION 13
#define AF_INET 2
/* In effect no clamp; the next step of autotuning sets its own. */
#define NO_CLAMP 0x3fffffff

/* What the agent sets; one entry. */
struct receive_config {
	struct drwa_law law;
	/* CLOCK_MONOTONIC, ns: after this nothing is changed. */
	__u64 lease_until_ns;
	/* Bytes received before anything is changed: handshakes and short replies stay as they are.
	 */
	__u64 start_bytes;
	/* The cgroup whose sockets are selected, for sockets that exist already; a sock_ops program
	 * sees only those of its cgroup. */
	__u64 cgroup;
	__u32 cgroup_level;
	/* Minimum window in segments; law.floor is set from it for each socket. */
	__u32 floor_segments;
	/* Segments that every decision adds. */
	__u32 increment_segments;
	/* 1: only destinations in `places`; 2: all but those. */
	__u32 by_place;
	__u32 shared_minimum;
	/* 1: measure and decide, but set no clamp. */
	__u32 observe;
	/* Grows with every change of `places` or `by_place`, so that sockets look their destination
	 * up again. */
	__u32 places_version;
	/* 1: only sockets of `user`. */
	__u32 by_user;
	__u32 user;
	/* 1: AFC's rate term is on. */
	__u32 rate_term;
	/* Largest buffer that SO_RCVBUF may make (twice net.core.rmem_max), in the kernel's count
	 * with its overhead. */
	__u32 max_buffer;
	/* 1: TCP's memory is scarce, so all larger buffers are given back. */
	__u32 scarce;
};

/* State of one socket. */
struct receive_socket {
	struct drwa law;
	/* Bytes received at the last ACK. */
	__u64 received;
	__u32 last_echo;
	/* The clamp that was set last; 0: none. */
	__u32 applied;
	__u32 reapplied;
	/* A clamp that the application had set before; 0: none. */
	__u32 app_clamp;
	/* Cached answer of place_selected: 2 × places_version, plus 1 if it is selected. */
	__u32 place_cached;
	/* flagged, 1: this program has set the callback flag, so it may clear it. grown, 1: a queue has
	 * stood since the connection began, or its begin was not seen (see growth_window). */
	__u8 flagged, grown;
	__u16 pad;
	/* The receive buffer that the application has fixed, and its larger size now; 0: unchanged.
	 */
	__u32 app_buffer, raised;
	struct backed reading;
	/* Which direction's queue it is. */
	struct half path;
	struct opposite opposite;
	/* Its place among the other downloads, and what it knows of them. */
	struct member member;
	struct share share;
};

/* What the agent reads of a flow, updated at each decision. */
struct receive_flow {
	__u32 remote[4];
	__u32 local_port, remote_port;
	__u64 at_ns;
	__u64 received;
	/* The mean rate, bytes per second. */
	__u64 rate;
	__u32 rtt_us, rtt_min_us, target, advertised, clamp, reapplied;
	/* 1: RTT by window, since the connection has no timestamps. */
	__u32 by_window;
	__u32 observed;
	/* λ in units of 1/256; padding, always zero. */
	__u32 lambda, pad;
};

struct receive_counters {
	__u64 sockets, samples, decisions, applied, reapplied, refused, lifted;
	/* Buffers that were made larger, and that were not, for want of memory. */
	__u64 raised, withheld;
};

struct place {
	__u32 prefix;
	__u32 address[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct receive_config);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct receive_counters);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct receive_socket);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} sockets SEC(".maps");

/* By remote address, IPv4 as ::ffff:a.b.c.d. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32[4]);
	__type(value, struct minimum);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} minima SEC(".maps");

/* Queues by remote address; :: stands for the whole device. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32[4]);
	__type(value, struct place_path);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} paths SEC(".maps");

/* What all downloads carry. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shares);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} shares SEC(".maps");

/* By socket cookie. Entries that are not updated for long are replaced (LRU). */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct receive_flow);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct place);
	__type(value, __u8);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} places SEC(".maps");

/* The number of the network namespace whose sockets are selected; 0: all. A cgroup may contain
 * sockets of many. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} space SEC(".maps");

/* The remote address, IPv4 as ::ffff:a.b.c.d. */
static __always_inline void remote_address(struct bpf_sock_ops *ctx, __u32 to[4])
{
	if (ctx->family == AF_INET) {
		to[0] = 0;
		to[1] = 0;
		to[2] = bpf_htonl(0xffff);
		to[3] = ctx->remote_ip4;
		/* Otherwise the compiler merges both reads into one at a variable offset, which the
		 * verifier refuses. */
		barrier();
	} else {
		to[0] = ctx->remote_ip6[0];
		to[1] = ctx->remote_ip6[1];
		to[2] = ctx->remote_ip6[2];
		to[3] = ctx->remote_ip6[3];
	}
}

/* Whether a destination is selected by the configuration. */
static __always_inline bool place_selected(const struct receive_config *c, const __u32 address[4])
{
	struct place key = { .prefix = 128, .address = { address[0], address[1], address[2], address[3] } };

	if (!c->by_place)
		return true;
	return (bpf_map_lookup_elem(&places, &key) != NULL) == (c->by_place == 1);
}

/* Whether the socket's user is selected by the configuration. */
static __always_inline bool user_selected(const struct receive_config *c, struct tcp_sock *tp)
{
	return !c->by_user || tp->inet_conn.icsk_inet.sk.sk_uid.val == c->user;
}

/* Whether the socket's network namespace is selected by the agent. */
static __always_inline bool space_selected(struct tcp_sock *tp)
{
	__u32 zero = 0;
	__u32 *selected = bpf_map_lookup_elem(&space, &zero);

	if (!selected || !*selected || !bpf_core_field_exists(tp->inet_conn.icsk_inet.sk.__sk_common.skc_net.net))
		return true;
	return BPF_CORE_READ(tp, inet_conn.icsk_inet.sk.__sk_common.skc_net.net, ns.inum) == *selected;
}

/* The payload for which `space` bytes of buffer are enough, as the kernel counts
 * (tcp_win_from_space). */
static __always_inline __u64 payload_of(struct tcp_sock *tp, __u64 space)
{
	int scale;

	if (bpf_core_field_exists(tp->scaling_ratio))
		return space * tp->scaling_ratio >> 8;
	/* Before Linux 6.6. */
	scale = BPF_CORE_READ(tp, inet_conn.icsk_inet.sk.__sk_common.skc_net.net, ipv4.sysctl_tcp_adv_win_scale);
	return scale <= 0 ? space >> (-scale & 31) : space - (space >> (scale & 31));
}

/* The kernel's own clamp where the application has set none: all payload that fits in the buffer
 * (tcp_win_from_space). */
static __always_inline __u32 kernel_clamp(struct tcp_sock *tp, const struct receive_socket *s)
{
	__u64 space = tp->inet_conn.icsk_inet.sk.sk_rcvbuf;

	/* Otherwise the compiler merges both reads into one through either pointer, which the
	 * verifier refuses. */
	barrier();
	/* The application's own buffer, where this program has made it larger. */
	if (s->raised)
		space = s->app_buffer;
	return law_min(payload_of(tp, space), NO_CLAMP);
}
