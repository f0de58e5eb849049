/* What the law is given at a receiving host, and the window that comes out: the decisions of
 * crates/algo/src/rwnd/receiving.rs, bit for bit. `receive.bpf.c` runs them on sockets, and
 * `conformance.bpf.c` on recorded streams.
 *
 * signal: timestamps of the segments that arrive, RTT samples · model: path.h with one half, since
 * the host is the end of the path; the smallest RTT of all sockets to one address · action: the
 * target window.
 */
#pragma once
#include "fair.h"

struct minimum {
	__u64 rtt_us;
	__u64 seen_ns;
};

/* The minimum RTT to an address that any socket knows, where this one's own is `own`. */
static __always_inline __u64 minimum_of(void *minima, const __u32 *address, __u64 own, __u64 now)
{
	struct minimum *shared = bpf_map_lookup_elem(minima, address);

	if (shared && shared->rtt_us <= own)
		return shared->rtt_us;
	if (own < LAW_MAX_RTT_US) {
		struct minimum new = { .rtt_us = own, .seen_ns = now };

		bpf_map_update_elem(minima, address, &new, BPF_ANY);
	}
	return own;
}

/* Splits the round trip's queueing into both directions, if a round trip has ended (`rtt_us`).
 * Without timestamps that of the law's last round counts. */
static __always_inline void receiving_measure(struct half *path, struct opposite *o, const struct drwa *law, void *paths,
					      const __u32 *address, __u64 now, __u32 rtt_us, bool stamped, __u32 stamp)
{
	struct place_path *known = place_of(paths, address);

	if (stamped)
		clock_tick(&path->clock, now, stamp);
	else
		rtt_us = law->rtt_us;
	if (rtt_us) {
		path->rtt_min_us = law->rtt_min_us;
		half_sample(path, now, rtt_us, stamped, known);
		/* Loopback has no queue. */
		if (stamped && law->rtt_min_us > LAW_MIN_RTT_US)
			place_learn(paths, address, path, now, true);
		opposite_sample(o, path->away_us);
	}
	path->received_ns = now;
}

/* Learns from the host's other downloads, and adds this one to them. `all`: the map of shares. */
static __always_inline void receiving_others(void *all, const struct drwa_law *law, const struct drwa *d, __u64 now, struct member *m,
					     struct share *share)
{
	__u32 zero = 0;
	struct shares *of_downloads = law->fair ? bpf_map_lookup_elem(all, &zero) : NULL;

	if (of_downloads)
		shares_take(of_downloads, now, d, m, share);
}

#ifdef RECEIVING_APART
/* Verified alone: with what surrounds it, it has too many paths. */
__attribute__((noinline)) int receiving_law(struct drwa *d, const struct drwa_law *law, __u64 now, const struct drwa_sample *sample)
{
	if (d && law && sample)
		drwa_on_sample(d, law, now, sample);
	return 0;
}
#else
#define receiving_law drwa_on_sample
#endif

/* This host opens a connection. `all`: the map of shares. */
static __always_inline void receiving_open(void *all, void *minima, const __u32 *address, __u64 now, struct member *m)
{
	__u32 zero = 0;
	struct shares *of_downloads = bpf_map_lookup_elem(all, &zero);

	if (of_downloads)
		shares_open(of_downloads, now, bpf_map_lookup_elem(minima, address) != NULL, m);
}

/* A sample of the law. True: with it the law has a decision, and `target` is the window. `mss`: payload
 * of a full segment. */
static __always_inline bool receiving_sample(struct drwa *d, struct opposite *o, bool grown, bool alone, const struct drwa_law *law, __u64 now,
					     const struct drwa_sample *sample, const struct share *share, __u64 mss, bool *grows,
					     __u64 *target)
{
	__u64 begun = d->begun_ns;

	receiving_law(d, law, now, sample);
	if (begun != d->begun_ns) {
		opposite_round(o, law, d, now, sample->copied, false);
		d->beside_us = o->mean_us;
	}
	/* Until the first round has ended the kernel's own window stays. */
	*grows = !grown;
	if (!d->rtt_us)
		return false;
	if (share->drains || growth_ends(d, alone))
		*grows = false;
	*target = opposite_window_beside(o, law, d, share, mss);
	if (*grows)
		*target = growth_window(*target, law, d);
	return true;
}
