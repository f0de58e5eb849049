/* A link between two network namespaces, in user space.
 *
 * signal: IP packets read from a TUN device in either namespace
 * model:  per direction  FIFO (droptail, bytes) -> serializer (rate) -> fate (loss, duplicate) -> delay line
 *         (fixed delay, jitter that keeps the order, chosen packets held back, bursts)
 * action: packets written to the other TUN device, and a truth log that says what happened to each of them
 *
 * usage: relay PHONE_NS:TUN SERVER_NS:TUN LOG SECONDS up:KEY=VALUE,... down:KEY=VALUE,...
 *
 *   rate=BITS_PER_S  queue=BYTES  delay=MS  jitter=MS  loss=SHARE  dup=SHARE  reorder=SHARE
 *   hold=MS or FROM/TO  how long a reordered packet, or the copy of a duplicated one, is held back
 *   step=S/BITS_PER_S   the rate from S seconds on; 0 is an outage: what arrives then is queued
 *   deep=S/BYTES        the FIFO's size from S seconds on
 *   burst=S/MS          from S seconds on packets leave together, every MS
 *   over=BYTES          ... but only while the opposite FIFO holds more than that
 *   from=S              loss, dup and reorder begin then
 *   kill=FROM/TO        bytes [FROM, TO) of every connection are dropped when first sent
 *   stall=S/PACKETS     the link stands still for S seconds from when so many of those packets were sent again
 *   blackout=FROM/TO    every packet is dropped between these seconds
 *   seed=N
 *
 * Seconds count from the first packet after SIGUSR1 (ICMPv6, which the kernels send by themselves, is none): on a busy
 * machine a program may take seconds to begin. SIGTERM, the death of the parent or SECONDS end the program.
 *
 * The log, one line per event, times in microseconds since the epoch, direction u(p) or d(own):
 *   + n time dir fate proto ipid sport dport seq ack flags payload iplen queue stamps sacks
 *                               packet n arrived; queue: bytes before it; stamps: TSval/TSecr; sacks: LEFT-RIGHT,... or -
 *   - n time dir waited                                                           a copy of n was delivered; waited: us in the FIFO
 *   q time dir bytes rate                                                         the FIFO, every 50 ms
 *   w time late                                                                   this program stood still for more than 1 ms
 * Lines are in the order in which things happened at the devices: before a packet is delivered to a device, all that its
 * host has sent until then is taken in.
 * fates: pass, queue (FIFO full), loss, kill, blackout, hold (reordered on purpose), dup. Only the last two and pass arrive.
 *
 * Deviations from a real radio: no HARQ, no grants; the rate is constant within a step.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 16, FLOWS = 4096, MTU_MAX = 65536, RING = 1 << 16, HEAP = 1 << 16 };
enum fate { PASS, QUEUE, LOSS, KILL, BLACKOUT, HOLD, DUP };
static const char *FATES[] = {"pass", "queue", "loss", "kill", "blackout", "hold", "dup"};

struct packet {
    uint64_t n, arrived, release;
    uint32_t len;
    enum fate fate;
    uint32_t waited;
    uint8_t data[];
};
struct step { uint64_t at, value; };
struct flow { uint32_t key, isn, end; uint8_t used; };
struct direction {
    char name;
    int in, out;
    uint64_t rate, queue, delay, jitter, hold, hold_span, burst_from, burst, over, from, kill_from, kill_to, stall, stall_after, killed_again, stall_from, dark_from, dark_to, rng;
    double loss, dup, reorder;
    struct step rates[STEPS], deeps[STEPS];
    int n_rates, n_deeps;
    struct packet *ring[RING];
    uint64_t head, tail, bytes, busy, last_release;
    struct packet *heap[HEAP];
    int heaped;
    struct flow flows[FLOWS];
};
static struct direction D[2];
static volatile sig_atomic_t stopping, started;
static FILE *log_file;
static uint64_t serial, zero; /* zero: where the seconds begin, 0 before */

static void on_stop(int s) { (void)s; stopping = 1; }
static void on_start(int s) { (void)s; started = 1; }
static void fail(const char *what) { perror(what); exit(1); }

/* Nanoseconds since the epoch, so that the log lies on the same clock as the captures. */
static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* splitmix64: one stream per direction, so that one direction's traffic never moves the other's random numbers. */
static double roll(struct direction *d) {
    uint64_t z = (d->rng += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static int open_tun(char *where) {
    char *name = strchr(where, ':');
    if (!name) { fprintf(stderr, "relay: NS:TUN expected, got %s\n", where); exit(2); }
    *name++ = 0;
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", where);
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), there = open(path, O_RDONLY | O_CLOEXEC);
    if (home < 0 || there < 0 || setns(there, CLONE_NEWNET)) fail(path);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq r;
    memset(&r, 0, sizeof r);
    strncpy(r.ifr_name, name, IFNAMSIZ - 1);
    r.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (fd < 0 || ioctl(fd, TUNSETIFF, &r)) fail("TUNSETIFF");
    if (setns(home, CLONE_NEWNET)) fail("setns");
    close(home);
    close(there);
    return fd;
}

static void parse(struct direction *d, char *text) {
    for (char *save, *item = strtok_r(text, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
        char *value = strchr(item, '=');
        if (!value) { fprintf(stderr, "relay: KEY=VALUE expected, got %s\n", item); exit(2); }
        *value++ = 0;
        char *slash = strchr(value, '/');
        double a = atof(value), b = slash ? atof(slash + 1) : 0;
        if (!strcmp(item, "rate")) d->rate = (uint64_t)a;
        else if (!strcmp(item, "queue")) d->queue = (uint64_t)a;
        else if (!strcmp(item, "delay")) d->delay = (uint64_t)(a * 1e6);
        else if (!strcmp(item, "jitter")) d->jitter = (uint64_t)(a * 1e6);
        else if (!strcmp(item, "hold")) { d->hold = (uint64_t)(a * 1e6); d->hold_span = slash ? (uint64_t)((b - a) * 1e6) : 0; }
        else if (!strcmp(item, "loss")) d->loss = a;
        else if (!strcmp(item, "dup")) d->dup = a;
        else if (!strcmp(item, "reorder")) d->reorder = a;
        else if (!strcmp(item, "from")) d->from = (uint64_t)(a * 1e9);
        else if (!strcmp(item, "over")) d->over = (uint64_t)a;
        else if (!strcmp(item, "seed")) d->rng = (uint64_t)a * 2 + (d->name == 'u');
        else if (!strcmp(item, "burst")) { d->burst_from = (uint64_t)(a * 1e9); d->burst = (uint64_t)(b * 1e6); }
        else if (!strcmp(item, "kill")) { d->kill_from = (uint64_t)a; d->kill_to = (uint64_t)b; }
        else if (!strcmp(item, "stall")) { d->stall = (uint64_t)(a * 1e9); d->stall_after = (uint64_t)b; }
        else if (!strcmp(item, "blackout")) { d->dark_from = (uint64_t)(a * 1e9); d->dark_to = (uint64_t)(b * 1e9); }
        else if (!strcmp(item, "step") && d->n_rates < STEPS) d->rates[d->n_rates++] = (struct step){(uint64_t)(a * 1e9), (uint64_t)b};
        else if (!strcmp(item, "deep") && d->n_deeps < STEPS) d->deeps[d->n_deeps++] = (struct step){(uint64_t)(a * 1e9), (uint64_t)b};
        else { fprintf(stderr, "relay: unknown key %s\n", item); exit(2); }
    }
}

/* What the log says of a packet's headers; zeros where there is no TCP or UDP. */
struct view { uint32_t proto, ipid, sport, dport, seq, ack, flags, payload, tsval, tsecr, sacks, sack[8]; };
static uint32_t word(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

/* Timestamps (RFC 7323) and SACK blocks (RFC 2018); a broken option ends the list. */
static void look_at_options(struct view *v, const uint8_t *o, const uint8_t *end) {
    while (o < end && *o) {
        if (*o == 1) { o++; continue; }
        if (o + 2 > end || o[1] < 2 || o + o[1] > end) return;
        if (*o == 8 && o[1] == 10) { v->tsval = word(o + 2); v->tsecr = word(o + 6); }
        if (*o == 5) for (int i = 2; i + 8 <= o[1] && v->sacks < 8; i += 8) {
            v->sack[v->sacks++] = word(o + i);
            v->sack[v->sacks++] = word(o + i + 4);
        }
        o += o[1];
    }
}
static struct view look(const uint8_t *p, uint32_t len) {
    struct view v = {0};
    uint32_t at, total;
    if (len >= 20 && p[0] >> 4 == 4) {
        at = (p[0] & 15) * 4u;
        total = (uint32_t)(p[2] << 8 | p[3]);
        v.ipid = (uint32_t)(p[4] << 8 | p[5]);
        v.proto = p[9];
    } else if (len >= 40 && p[0] >> 4 == 6) {
        at = 40;
        total = 40u + (uint32_t)(p[4] << 8 | p[5]);
        v.proto = p[6];
    } else return v;
    if (total > len || at + 8 > total) return v;
    const uint8_t *t = p + at;
    if (v.proto == 6 || v.proto == 17) {
        v.sport = (uint32_t)(t[0] << 8 | t[1]);
        v.dport = (uint32_t)(t[2] << 8 | t[3]);
        v.payload = total - at - 8;
    }
    if (v.proto == 6 && at + 20 <= total) {
        uint32_t head = (t[12] >> 4) * 4u;
        if (head < 20 || at + head > total) return v;
        v.seq = word(t + 4);
        v.ack = word(t + 8);
        v.flags = t[13];
        v.payload = total - at - head;
        look_at_options(&v, t + 20, t + head);
    }
    return v;
}

/* Whether this is the first transmission of bytes that `kill` names. Another one may begin `stall`. */
static int to_be_killed(struct direction *d, const struct view *v, uint64_t since) {
    if (v->proto != 6 || d->kill_to <= d->kill_from) return 0;
    uint32_t key = v->sport << 16 | v->dport;
    struct flow *f = NULL;
    for (uint32_t i = 0; i < FLOWS && !f; i++) {
        struct flow *c = &d->flows[(key * 2654435761u + i) % FLOWS];
        if (!c->used || c->key == key) f = c;
    }
    if (!f) return 0;
    if (v->flags & 2) { *f = (struct flow){key, v->seq, v->seq + 1, 1}; return 0; }
    if (!f->used || !v->payload) return 0;
    uint32_t rel = v->seq - f->isn - 1;
    int named = rel >= d->kill_from && rel < d->kill_to;
    if ((int32_t)(v->seq - f->end) < 0) {
        d->killed_again += named;
        if (named && d->killed_again == d->stall_after) d->stall_from = since;
        return 0;
    }
    f->end = v->seq + v->payload;
    return named;
}

static uint64_t at_time(const struct step *s, int n, uint64_t t, uint64_t first) {
    for (int i = 0; i < n; i++) if (t >= s[i].at) first = s[i].value;
    return first;
}

/* Of the serializer, bit/s; 0: it stands still. */
static uint64_t rate_at(const struct direction *d, uint64_t since) {
    if (d->stall_from && since >= d->stall_from && since < d->stall_from + d->stall) return 0;
    return at_time(d->rates, d->n_rates, since, d->rate);
}

/* Delay line: a binary heap by release time, then by number, so that equal times keep their order. */
static int before(const struct packet *a, const struct packet *b) {
    return a->release != b->release ? a->release < b->release : a->n < b->n;
}
static void heap_push(struct direction *d, struct packet *p) {
    if (d->heaped == HEAP) { fprintf(stderr, "relay: delay line full\n"); exit(1); }
    int i = d->heaped++;
    for (; i && before(p, d->heap[(i - 1) / 2]); i = (i - 1) / 2) d->heap[i] = d->heap[(i - 1) / 2];
    d->heap[i] = p;
}
static struct packet *heap_pop(struct direction *d) {
    struct packet *top = d->heap[0], *last = d->heap[--d->heaped];
    int i = 0;
    for (int c; (c = 2 * i + 1) < d->heaped; i = c) {
        if (c + 1 < d->heaped && before(d->heap[c + 1], d->heap[c])) c++;
        if (!before(d->heap[c], last)) break;
        d->heap[i] = d->heap[c];
    }
    d->heap[i] = last;
    return top;
}

static void arrive(struct direction *d, const uint8_t *data, uint32_t len, uint64_t t, uint64_t since) {
    struct view v = look(data, len);
    enum fate fate = PASS;
    if (started && !zero && v.proto && v.proto != 58) zero = t;
    /* Every packet draws all three random numbers, so that a change of one share leaves the others' choices alone. */
    double a = roll(d), b = roll(d), c = roll(d);
    int on = zero && since >= d->from;
    if (zero && since >= d->dark_from && since < d->dark_to) fate = BLACKOUT;
    else if (to_be_killed(d, &v, since)) fate = KILL;
    else if (d->bytes + len > at_time(d->deeps, d->n_deeps, since, d->queue) || d->tail - d->head >= RING) fate = QUEUE;
    else if (on && a < d->loss) fate = LOSS;
    else if (on && b < d->reorder) fate = HOLD;
    else if (on && c < d->dup) fate = DUP;
    uint64_t n = serial++;
    fprintf(log_file, "+ %" PRIu64 " %" PRIu64 " %c %s %u %u %u %u %u %u %u %u %u %" PRIu64 " %u/%u ", n, t / 1000, d->name,
            FATES[fate], v.proto, v.ipid, v.sport, v.dport, v.seq, v.ack, v.flags, v.payload, len, d->bytes, v.tsval, v.tsecr);
    for (uint32_t i = 0; i < v.sacks; i += 2) fprintf(log_file, "%s%u-%u", i ? "," : "", v.sack[i], v.sack[i + 1]);
    fputs(v.sacks ? "\n" : "-\n", log_file);
    if (fate == BLACKOUT || fate == KILL || fate == QUEUE) return;
    struct packet *p = malloc(sizeof *p + len);
    if (!p) fail("malloc");
    *p = (struct packet){.n = n, .arrived = t, .len = len, .fate = fate};
    memcpy(p->data, data, len);
    d->ring[d->tail++ % RING] = p;
    d->bytes += len;
}

/* The packet has left the serializer: lose it, or put it (twice) on the delay line. */
static void leave(struct direction *d, struct packet *p, uint64_t t, uint64_t since, uint64_t opposite) {
    p->waited = (uint32_t)((t - p->arrived) / 1000);
    if (p->fate == LOSS) { free(p); return; }
    p->release = t + d->delay + (d->jitter ? (uint64_t)(roll(d) * (double)d->jitter) : 0);
    if (d->burst && since >= d->burst_from && opposite >= d->over) p->release += d->burst - p->release % d->burst;
    uint64_t hold = d->hold + (d->hold_span ? (uint64_t)(roll(d) * (double)d->hold_span) : 0);
    if (p->fate == HOLD) p->release += hold;
    else {
        if (p->release < d->last_release) p->release = d->last_release;
        d->last_release = p->release;
    }
    if (p->fate == DUP) {
        struct packet *q = malloc(sizeof *q + p->len);
        if (!q) fail("malloc");
        memcpy(q, p, sizeof *q + p->len);
        q->release += hold;
        heap_push(d, q);
    }
    heap_push(d, p);
}

/* Everything that this direction's host has sent, as long as it has not sent more than a whole queue of it. */
static void take_in(struct direction *d, uint64_t since) {
    static uint8_t buffer[MTU_MAX];
    ssize_t got;
    for (int k = 0; k < 1024 && (got = read(d->in, buffer, sizeof buffer)) > 0; k++) arrive(d, buffer, (uint32_t)got, now_ns(), since);
}

/* Writes down that something happened more than 1 ms after it was due: the machine ran something else meanwhile. */
static void late(uint64_t at, uint64_t due) {
    if (at > due + 1000000ull) fprintf(log_file, "w %" PRIu64 " %" PRIu64 "\n", at / 1000, (at - due) / 1000);
}

int main(int argc, char **argv) {
    if (argc != 7) { fprintf(stderr, "usage: relay PHONE_NS:TUN SERVER_NS:TUN LOG SECONDS up:... down:...\n"); return 2; }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_TIMERSLACK, 1);
    signal(SIGTERM, on_stop);
    signal(SIGINT, on_stop);
    signal(SIGUSR1, on_start);
    int phone = open_tun(argv[1]), server = open_tun(argv[2]);
    if (!(log_file = fopen(argv[3], "w"))) fail(argv[3]);
    setvbuf(log_file, NULL, _IOFBF, 1 << 20);
    for (int i = 0; i < 2; i++) {
        char *text = argv[5 + i], *colon = strchr(text, ':');
        if (!colon || (*text != 'u' && *text != 'd')) { fprintf(stderr, "relay: up:... or down:..., got %s\n", text); return 2; }
        struct direction *d = &D[*text == 'd'];
        *d = (struct direction){.name = *text, .in = *text == 'u' ? phone : server, .out = *text == 'u' ? server : phone,
                                .rate = 100000000, .queue = 1000000, .rng = 1};
        parse(d, colon + 1);
    }
    uint64_t birth = now_ns(), end = birth + (uint64_t)(atof(argv[4]) * 1e9), sample = birth;
    /* Real-time priority keeps the serializer's gaps true on a busy machine; without the right to it the run still works. */
    struct sched_param sp = {.sched_priority = 10};
    sched_setscheduler(0, SCHED_FIFO, &sp);
    /* Under memory pressure this program's pages would be fetched from disk in the middle of a run. */
    mlockall(MCL_CURRENT);
    printf("ready\n");
    fflush(stdout);
    for (uint64_t turn = birth; !stopping;) {
        uint64_t t = now_ns(), next = t + 50000000ull;
        if (t >= end) break;
        uint64_t since = zero && t > zero ? t - zero : 0;
        for (int i = 0; i < 2; i++) {
            struct direction *d = &D[i];
            take_in(d, since);
            t = now_ns();
            uint64_t rate = rate_at(d, since);
            if (!rate) d->busy = t;
            while (rate && d->head != d->tail) {
                struct packet *p = d->ring[d->head % RING];
                /* A packet that came while this program slept did not begin before it came. */
                uint64_t done = (d->busy > p->arrived ? d->busy : p->arrived) + p->len * 8000000000ull / rate;
                if (done > t) { if (done < next) next = done; break; }
                d->head++;
                d->bytes -= p->len;
                d->busy = done;
                leave(d, p, done, since, D[!i].bytes);
            }
            while (d->heaped && d->heap[0]->release <= t) {
                struct packet *p = heap_pop(d);
                take_in(&D[!i], since);
                uint64_t out = now_ns();
                if (write(d->out, p->data, p->len) < 0) { if (errno != EIO && errno != EAGAIN) fail("write"); }
                else fprintf(log_file, "- %" PRIu64 " %" PRIu64 " %c %u\n", p->n, out / 1000, d->name, p->waited);
                free(p);
            }
            if (d->heaped && d->heap[0]->release < next) next = d->heap[0]->release;
        }
        if (t >= sample) {
            for (int i = 0; i < 2; i++)
                fprintf(log_file, "q %" PRIu64 " %c %" PRIu64 " %" PRIu64 "\n", t / 1000, D[i].name, D[i].bytes,
                        rate_at(&D[i], since));
            sample = t + 50000000ull;
        }
        if (sample < next) next = sample;
        uint64_t here = now_ns();
        struct timespec wait = {0, next > here ? (long)(next - here) : 0};
        struct pollfd fds[2] = {{phone, POLLIN, 0}, {server, POLLIN, 0}};
        late(here, turn);
        ppoll(fds, 2, &wait, NULL);
        turn = now_ns();
        late(turn, next > here ? next : here);
    }
    fclose(log_file);
    return 0;
}
