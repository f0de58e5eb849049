/* ACK-window rewriting: structs and maps. What is stored of a flow, what the agent sets, what the
 * agent reads.
 *
 * src/kernel/layouts/acks.rs mirrors these structs field by field: change both together. The agent
 * finds the maps by their names.
 */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>

#include "fair.h"
#include "segment.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct tcp_options_received___scales {
	__u16 wscale_ok : 1, snd_wscale : 4, rcv_wscale : 4;
};

struct minmax_sample___scales {
	__u32 v;
};

struct minmax___scales {
	struct minmax_sample___scales s[3];
};

struct tcp_sock___scales {
	struct minmax___scales rtt_min;
	struct tcp_options_received___scales rx_opt;
	__u16 advmss;
};
#pragma clang attribute pop

struct acks_config {
	/* `floor` and `increment` are set for each flow from its segment size. */
	struct drwa_law down, up;
	/* CLOCK_MONOTONIC, ns: after this every segment passes unchanged. */
	__u64 lease_until_ns;
	/* Payload bytes before windows are rewritten, again after every pause. */
	__u64 down_start_bytes, up_start_bytes;
	__u64 pause_ns;
	/* Bytes before the network header: 14, or 0 on devices without a link layer. */
	__u32 link_bytes;
	__u32 floor_segments, increment_segments;
	/* Bit mask of DOWN and UP: the directions that are controlled. */
	__u32 directions;
	/* In these directions windows pass unchanged for now, but flows are still measured. */
	__u32 lifted;
	/* 1: `exempt` contains flows. */
	__u32 exempting;
	/* Counts leases. When it changes, the windows advertised in between are unknown. */
	__u32 generation;
	/* 1: this host's own downloads are left to the cure on sockets (receive.bpf.c). */
	__u32 forwarded_only;
	/* 1: samples and windows are copied to `trace`; only tests set it. */
	__u32 tracing, pad;
};

/* One direction of data. Samples come with segments that arrive at the device; `edge` is written
 * where the ACKs of this direction pass. */
struct direction {
	struct drwa law;
	/* Payload bytes that came (downloads) or were acknowledged (uploads), of all times, and the
	 * same at the start or at the end of the last pause. */
	__u64 passed, started_at;
	__u64 begun_ns;
	/* Highest sequence number (or acknowledgment number) that came in. */
	__u32 max_seq;
	/* The right edge as the sender got to see it. */
	__u32 edge;
	struct opposite opposite;
	struct member member;
	__u32 target, advertised;
	__u32 rewritten;
	/* `grown`: a queue has stood since the flow began or paused (see growth_window). `moved_on`:
	 * the edge has moved on to the end of a pair (see paired). */
	__u8 max_seq_known, edge_known, scale, grown : 1, moved_on : 1;
};

struct flow {
	struct direction down, up;
	/* The path beyond the device, and the path on this side of it. */
	struct half outer, inner;
	__u64 seen_ns;
	/* Highest sequence number sent to outside, to inside. */
	__u32 sent_out, sent_in;
	__u32 first_out, first_in;
	__u32 generation;
	__u16 mss_out, mss_in;
	__u8 wscale_out, wscale_in, syn_out, syn_in;
	__u8 fin_out, fin_in, ready, excluded;
	/* 1: an end of the flow is on this host. */
	__u32 local, pad;
};

struct acks_counters {
	__u64 segments, flows, unknown, excluded, samples, decisions, rewritten, gso_packets, edge_limited, out_of_window;
	__u64 down_bytes, up_bytes;
	/* Packets of any kind that came to the hooks. */
	__u64 packets;
};

struct traced {
	__u64 now_ns;
	struct drwa_sample sample;
	__u64 rtt_min_us, window;
	__u32 up, begins, opposite_us, target;
	struct drwa_law law;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct acks_config);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct acks_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* A zeroed flow to copy from: too large for the stack, never written to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} blank SEC(".maps");

/* By remote address; :: stands for the whole device. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32[4]);
	__type(value, struct place_path);
} places SEC(".maps");

/* What the flows of either direction of data carry: downloads, uploads. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct shares);
} shares SEC(".maps");

/* Flows whose windows are not rewritten (EXEMPT), or only to what passes at their rate within the
 * RTT that is the value, µs. */
#define EXEMPT 1
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct flow_key);
	__type(value, __u32);
} exempt SEC(".maps");

/* Samples for tests: one entry unless a test asks for more. `traces` counts the entries in use. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct traced);
} trace SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} traces SEC(".maps");

/* The time that the last segment was handled at, where `tracing` is set. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} traced_at SEC(".maps");
