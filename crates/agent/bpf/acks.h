/* DRWA on passing ACKs: what is kept of a flow, what the agent sets, what can be seen from outside; structs and maps.
 *
 * src/acks/layout.rs has the same structs for the agent: whoever changes one here changes that, too.
 */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>
#include <bpf/bpf_core_read.h>

#include "path.h"
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
	/* floor and increment are set for each flow from its segment size. */
	struct drwa_law down, up;
	/* CLOCK_MONOTONIC, ns: everything passes after this. */
	__u64 lease_until_ns;
	/* Payload before anything is done, again after every pause. */
	__u64 down_start_bytes, up_start_bytes;
	__u64 pause_ns;
	/* Bytes before the network header: 14, or 0 on devices without. */
	__u32 link_bytes;
	__u32 floor_segments, increment_segments;
	/* DOWN, UP or both. */
	__u32 directions;
	/* Of these directions windows pass for now, but are watched. */
	__u32 lifted;
	/* 1: there are flows in `exempt`. */
	__u32 exempting;
	/* Another one: what was told meanwhile is not known. */
	__u32 generation;
	/* 1: this host's own downloads have another cure. */
	__u32 forwarded_only;
	/* Samples and windows into `trace`; for tests. */
	__u32 tracing, pad;
};

/* One direction of data. Its samples come with what comes in; `edge` is written where its ACKs pass. */
struct direction {
	struct drwa law;
	/* Payload, or payload acknowledged, since the begin, and at the begin or the end of the last pause. */
	__u64 passed, started_at;
	__u64 begun_ns;
	/* Highest that came in. */
	__u32 top;
	/* The right edge that was told, as we let it pass. */
	__u32 edge;
	struct opposite opposite;
	__u32 wanted, told;
	__u32 rewritten;
	__u8 top_known, edge_known, scale, pad;
};

struct flow {
	struct direction down, up;
	/* Towards outside, towards inside. */
	struct half outer, inner;
	__u64 seen_ns;
	/* Highest byte sent to outside, inside. */
	__u32 sent_out, sent_in;
	__u32 first_out, first_in;
	__u32 generation;
	__u16 mss_out, mss_in;
	__u8 offer_out, offer_in, syn_out, syn_in;
	__u8 fin_out, fin_in, ready, barred;
	/* 1: an end of it is here. */
	__u32 local, pad;
};

struct acks_counters {
	__u64 segments, flows, unknown, barred, samples, decisions, rewritten, superpackets, held, strange;
	__u64 down_bytes, up_bytes;
};

struct traced {
	__u64 now_ns;
	struct drwa_sample sample;
	__u64 rtt_min_us, window;
	__u32 up, begins, opposite_us, wanted;
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

/* Too large for the stack; never written to. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} blank SEC(".maps");

/* By far address; :: is the device. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32[4]);
	__type(value, struct place_seen);
} places SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct flow_key);
	__type(value, __u32);
} exempt SEC(".maps");

/* One entry unless a test wants more; and how many are used. */
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
