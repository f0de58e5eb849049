/* The kernel's structs, as far as the programs here read them.
 *
 * The loader relocates offsets (CO-RE), so neither the order nor the completeness of the fields
 * matters, and no generated vmlinux.h of megabytes is needed. Names are the kernel's.
 */
#pragma once
#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_options_received {
	__u32 rcv_tsval;
	__u32 rcv_tsecr;
	__u16 tstamp_ok : 1;
	__u16 rcv_wscale : 4;
};

struct kernfs_node {
	__u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	/* Since Linux 6.1. */
	struct cgroup *ancestors[];
};

struct sock_cgroup_data {
	/* Since Linux 5.17. */
	struct cgroup *cgroup;
};

struct in6_addr {
	union {
		__u32 u6_addr32[4];
	} in6_u;
};

struct ns_common {
	unsigned int inum;
};

struct netns_ipv4 {
	/* Before Linux 6.6: the part of a buffer that counts as payload, for a whole namespace. */
	int sysctl_tcp_adv_win_scale;
};

struct net {
	struct ns_common ns;
	struct netns_ipv4 ipv4;
};

/* Without members if the kernel has no network namespaces. */
typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	possible_net_t skc_net;
	__u16 skc_family;
	__u8 skc_state;
	__u16 skc_dport;
	__u16 skc_num;
	__u32 skc_daddr, skc_rcv_saddr;
	struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
};

typedef struct {
	__u32 val;
} kuid_t;

typedef struct {
	int counter;
} atomic_t;

struct sock {
	struct sock_common __sk_common;
	int sk_rcvbuf;
	/* The user who made it, as the first user namespace numbers users. */
	kuid_t sk_uid;
	/* What the application has fixed; bit 2: the receive buffer. */
	__u8 sk_userlocks : 4;
	struct {
		atomic_t rmem_alloc;
	} sk_backlog;
	struct sock_cgroup_data sk_cgrp_data;
};

struct inet_sock {
	struct sock sk;
};

struct tcp_congestion_ops {
	char name[16];
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	const struct tcp_congestion_ops *icsk_ca_ops;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt, rcv_wup, rcv_wnd, copied_seq;
	__u32 window_clamp, rcv_ssthresh;
	__u32 snd_cwnd, packets_out, mss_cache;
	__u64 bytes_acked;
	__u16 advmss;
	/* Since Linux 6.6: the part of a buffer that counts as payload, in 256ths. */
	__u8 scaling_ratio;
	__u64 bytes_received;
	struct tcp_options_received rx_opt;
	struct minmax rtt_min;
	__u32 srtt_us;
	__u32 rcv_tstamp;
	__u8 tcp_usec_ts : 1;
	__u8 bpf_sock_ops_cb_flags;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop
