/* The kernel's structs, as far as the programs here read them.
 *
 * Offsets are relocated when a program is loaded (CO-RE), so neither the order nor the completeness of the fields matters, and no
 * generated vmlinux.h of megabytes has to be kept. Names are the kernel's.
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
	__u32 rcv_tsecr;
};

struct tcp_sock {
	__u32 rcv_nxt, rcv_wup, rcv_wnd, copied_seq;
	__u32 window_clamp, rcv_ssthresh;
	__u16 advmss;
	__u64 bytes_received;
	struct tcp_options_received rx_opt;
	struct minmax rtt_min;
	__u32 srtt_us;
	__u8 tcp_usec_ts : 1;
	__u8 bpf_sock_ops_cb_flags;
};

struct in6_addr_words {
	__u32 u6_addr32[4];
};

struct sock_common {
	__u16 skc_family;
	__u8 skc_state;
	__u16 skc_dport;
	__u16 skc_num;
	__u32 skc_daddr;
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
