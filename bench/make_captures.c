/* Capture files for the benchmarks: always the same bytes, at any size, without a network.
 *
 * signal: a shape (which connections, how many packets, how much of each is kept)
 * model:  each connection is a small TCP: handshake, requests and responses or bulk data, window growth, one loss at a
 *         time with duplicate ACKs, SACK and a fast retransmission, timestamps, FIN or RST; packets of all of
 *         them are merged by time
 * action: a pcap file (Ethernet, microseconds)
 *
 * usage: make_captures SHAPE FILE
 *   many      4,494,000 packets of 20,009 connections, 128 bytes kept of each: web traffic and nine bulk transfers
 *   full      1,114,000 packets of 5 bulk connections, all bytes kept
 *   single    1,000,000 packets of one bulk connection, 128 bytes kept
 *   oneside60 oneside120 oneside200   as many thousand packets of one bulk connection, without its ACKs
 *   many10 full10                     a tenth of `many` and `full`
 *
 * Deviations from real traffic: no loss within a recovery, no timeouts, no reordering: the files measure speed; what is
 * right is measured in tests/truth.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MSS = 1448, ACKS = 4096, HEADERS = 14 + 20 + 20 + 40 };
enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16 };
enum phase { HELLO, WELCOME, THANKS, REQUEST, DATA, CLOSE, CLOSED, LAST, DONE };

struct ack { double t; uint32_t ack, sack_from, sack_to, tsval, tsecr; };
struct conn {
    uint32_t client, server;
    uint16_t port, service;
    enum phase phase;
    int bulk, exchanges, ack_every, unacked, hole, dupes, retransmit, ending;
    double t, rtt, gap, loss, cwnd, cwnd_max;
    uint32_t seq[2], ts_seen[2];       /* next byte of client and server; last TSval seen of each */
    uint32_t una, end, high, hole_seq, hole_len, burst_ts;
    struct ack *acks;
    uint32_t head, tail;
    uint16_t ipid[2];
};

static FILE *out;
static uint64_t left, rng = 42;
static uint32_t kept;
static int one_sided;
static uint8_t payload[65536];

static double roll(void) {
    uint64_t z = (rng += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}
static void put16(uint8_t *p, uint32_t v) { p[0] = (uint8_t)(v >> 8); p[1] = (uint8_t)v; }
static void put32(uint8_t *p, uint32_t v) { put16(p, v >> 16); put16(p + 2, v & 0xffff); }
static uint32_t stamp(double t) { return 1000000u + (uint32_t)(t * 1000); }

/* One packet; side 0 is the client's. */
static void packet(struct conn *c, int side, double t, uint32_t flags, uint32_t seq, uint32_t ack, uint32_t len, uint32_t sack_from,
                   uint32_t sack_to, uint32_t tsval, uint32_t tsecr) {
    if (!left || (one_sided && !len && !(flags & SYN))) return;
    left--;
    uint8_t h[16 + HEADERS] = {0}, *e = h + 16, *ip = e + 14, *tcp = ip + 20, *o = tcp + 20;
    uint8_t mac[2][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};
    memcpy(e, mac[!side], 6);
    memcpy(e + 6, mac[side], 6);
    put16(e + 12, 0x0800);
    if (flags & SYN) {
        *o++ = 2; *o++ = 4; put16(o, 1460); o += 2;
        *o++ = 4; *o++ = 2;
    } else { *o++ = 1; *o++ = 1; }
    *o++ = 8; *o++ = 10; put32(o, tsval); put32(o + 4, tsecr); o += 8;
    if (flags & SYN) { *o++ = 1; *o++ = 3; *o++ = 3; *o++ = 7; }
    if (sack_to != sack_from) { *o++ = 1; *o++ = 1; *o++ = 5; *o++ = 10; put32(o, sack_from); put32(o + 4, sack_to); o += 8; }
    uint32_t thl = (uint32_t)(o - tcp), total = 20 + thl + len, wire = 14 + total, keep = wire < kept ? wire : kept;
    ip[0] = 0x45;
    put16(ip + 2, total);
    put16(ip + 4, c->ipid[side]++);
    ip[6] = 0x40;
    ip[8] = 64;
    ip[9] = 6;
    put32(ip + 12, side ? c->server : c->client);
    put32(ip + 16, side ? c->client : c->server);
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2) sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
    sum = (sum & 0xffff) + (sum >> 16);
    put16(ip + 10, ~(sum + (sum >> 16)) & 0xffff);
    put16(tcp, side ? c->service : c->port);
    put16(tcp + 2, side ? c->port : c->service);
    put32(tcp + 4, seq);
    put32(tcp + 8, ack);
    tcp[12] = (uint8_t)(thl << 2);
    tcp[13] = (uint8_t)flags;
    put16(tcp + 14, flags & SYN ? 64240 : 32000);
    uint64_t us = 1700000000ull * 1000000 + (uint64_t)(t * 1e6);
    uint32_t record[4] = {(uint32_t)(us / 1000000), (uint32_t)(us % 1000000), keep, wire};
    memcpy(h, record, 16);
    uint32_t headers = 14 + 20 + thl, first = keep < headers ? keep : headers;
    fwrite(h, 1, 16 + first, out);
    if (keep > headers) fwrite(payload, 1, keep - headers, out);
    c->ts_seen[side] = tsval;
}

static void put_ack(struct conn *c, double t, uint32_t ack, uint32_t from, uint32_t to, uint32_t tsval, uint32_t tsecr) {
    if (c->tail - c->head == ACKS) { fprintf(stderr, "too many ACKs under way\n"); exit(1); }
    c->acks[c->tail++ % ACKS] = (struct ack){t, ack, from, to, tsval, tsecr};
}

/* The data's sender is the server, except in bulk connections: there it is the client. */
static int sender(const struct conn *c) { return !c->bulk; }

static int may_send(const struct conn *c) {
    uint32_t s = c->seq[sender(c)];
    return c->retransmit || (s != c->end && (double)(s - c->una) < c->cwnd * MSS);
}

/* When this connection acts next. */
static double due(const struct conn *c) {
    if (c->phase != DATA) return c->t;
    double a = c->head != c->tail ? c->acks[c->head % ACKS].t : INFINITY;
    return may_send(c) && c->t < a ? c->t : a;
}

static void segment(struct conn *c, uint32_t seq, uint32_t len, int again) {
    int s = sender(c);
    uint32_t ts = stamp(c->t), arrival = stamp(c->t + c->rtt / 2);
    packet(c, s, c->t, ACK | (seq + len == c->end ? PSH : 0), seq, c->seq[!s], len, 0, 0, ts, c->ts_seen[!s]);
    double back = c->t + c->rtt;
    c->t += c->gap;
    if (again) {
        c->hole = 0;
        put_ack(c, back, c->high, 0, 0, arrival, ts);
        return;
    }
    c->high = seq + len;
    if (!c->hole && c->end - c->high > 20 * MSS && roll() < c->loss) {
        c->hole = 1;
        c->hole_seq = seq;
        c->hole_len = len;
        c->dupes = 0;
    } else if (c->hole) put_ack(c, back, c->hole_seq, c->hole_seq + c->hole_len, c->high, arrival, c->burst_ts);
    else {
        if (!c->unacked++) c->burst_ts = ts;
        if (c->unacked >= c->ack_every || c->high == c->end) {
            put_ack(c, back, c->high, 0, 0, arrival, c->burst_ts);
            c->unacked = 0;
        }
    }
}

static void data(struct conn *c) {
    int s = sender(c);
    if (c->head != c->tail && !(may_send(c) && c->t < c->acks[c->head % ACKS].t)) {
        struct ack a = c->acks[c->head++ % ACKS];
        packet(c, !s, a.t, ACK, c->seq[!s], a.ack, 0, a.sack_from, a.sack_to, a.tsval, a.tsecr);
        if (c->t < a.t) c->t = a.t + 20e-6;
        if (a.sack_to && ++c->dupes == 3) {
            c->retransmit = 1;
            c->cwnd = c->cwnd > 8 ? c->cwnd * 0.7 : 8;
        } else if (!a.sack_to) {
            c->cwnd += (double)(a.ack - c->una) / MSS / c->cwnd * (c->cwnd < 32 ? c->cwnd : 1);
            if (c->cwnd > c->cwnd_max) c->cwnd = c->cwnd_max;
            c->una = a.ack;
        }
        if (c->una == c->end) { c->phase = --c->exchanges > 0 ? REQUEST : CLOSE; c->t = a.t + 1e-3; }
        return;
    }
    if (c->retransmit) {
        c->retransmit = 0;
        segment(c, c->hole_seq, c->hole_len, 1);
        return;
    }
    uint32_t rest = c->end - c->seq[s], len = rest < MSS ? rest : MSS, seq = c->seq[s];
    c->seq[s] += len;
    segment(c, seq, len, 0);
}

static void begin_data(struct conn *c, uint32_t bytes) {
    int s = sender(c);
    c->phase = DATA;
    c->una = c->high = c->seq[s];
    c->end = c->seq[s] + bytes;
    c->unacked = c->hole = 0;
}

/* One packet of this connection, or a change of phase. */
static void act(struct conn *c) {
    double t = c->t;
    uint32_t len;
    switch (c->phase) {
    case HELLO:
        packet(c, 0, t, SYN, c->seq[0]++, 0, 0, 0, 0, stamp(t), 0);
        c->t += c->rtt; c->phase = WELCOME; break;
    case WELCOME:
        packet(c, 1, t, SYN | ACK, c->seq[1]++, c->seq[0], 0, 0, 0, stamp(t), c->ts_seen[0]);
        c->t += 30e-6; c->phase = THANKS; break;
    case THANKS:
        packet(c, 0, t, ACK, c->seq[0], c->seq[1], 0, 0, 0, stamp(t), c->ts_seen[1]);
        c->t += 100e-6;
        if (c->bulk) begin_data(c, 3000000000u); else c->phase = REQUEST;
        break;
    case REQUEST:
        len = 150 + (uint32_t)(roll() * 700);
        packet(c, 0, t, ACK | PSH, c->seq[0], c->seq[1], len, 0, 0, stamp(t), c->ts_seen[1]);
        c->seq[0] += len;
        c->t += c->rtt + 2e-3;
        /* Pareto, 1.2: most answers are a few segments, a few are megabytes. */
        len = (uint32_t)(6000 * pow(1 - roll(), -1 / 1.2));
        begin_data(c, len < 4000000 ? len : 4000000);
        break;
    case DATA: data(c); break;
    case CLOSE:
        if (c->ending == 2) { c->phase = DONE; break; }
        packet(c, 0, t, (c->ending ? RST : FIN) | ACK, c->seq[0]++, c->seq[1], 0, 0, 0, stamp(t), c->ts_seen[1]);
        c->t += c->rtt; c->phase = c->ending ? DONE : CLOSED; break;
    case CLOSED:
        packet(c, 1, t, FIN | ACK, c->seq[1]++, c->seq[0], 0, 0, 0, stamp(t), c->ts_seen[0]);
        c->t += 20e-6; c->phase = LAST; break;
    case LAST:
        packet(c, 0, t, ACK, c->seq[0], c->seq[1], 0, 0, 0, stamp(t), c->ts_seen[1]);
        c->phase = DONE; break;
    case DONE: break;
    }
}

static struct conn **heap;
static int heaped;
static void sift(int i) {
    struct conn *top = heap[i];
    for (int k; (k = 2 * i + 1) < heaped; i = k) {
        if (k + 1 < heaped && due(heap[k + 1]) < due(heap[k])) k++;
        if (due(heap[k]) >= due(top)) break;
        heap[i] = heap[k];
    }
    heap[i] = top;
}

int main(int argc, char **argv) {
    struct shape { const char *name; uint64_t packets; int web, bulk; uint32_t kept; int ack_every, one_sided; } shapes[] = {
        {"many", 4494000, 20000, 9, 128, 6, 0}, {"full", 1114000, 0, 5, 65535, 30, 0}, {"single", 1000000, 0, 1, 128, 2, 0},
        {"oneside60", 60000, 0, 1, 128, 2, 1}, {"oneside120", 120000, 0, 1, 128, 2, 1}, {"oneside200", 200000, 0, 1, 128, 2, 1},
        {"many10", 449400, 2000, 9, 128, 6, 0}, {"full10", 111400, 0, 5, 65535, 30, 0},
    };
    struct shape *shape = NULL;
    for (size_t i = 0; argc == 3 && i < sizeof shapes / sizeof *shapes; i++) if (!strcmp(argv[1], shapes[i].name)) shape = &shapes[i];
    if (!shape) { fprintf(stderr, "usage: make_captures many|full|single|oneside60|oneside120|oneside200|many10|full10 FILE\n"); return 2; }
    if (!(out = fopen(argv[2], "wb"))) { perror(argv[2]); return 1; }
    setvbuf(out, NULL, _IOFBF, 1 << 20);
    uint32_t header[6] = {0xa1b2c3d4, 4 << 16 | 2, 0, 0, shape->kept, 1};
    fwrite(header, 1, 24, out);
    for (size_t i = 0; i < sizeof payload; i++) payload[i] = (uint8_t)(i * 131 >> 3);
    left = shape->packets;
    kept = shape->kept;
    one_sided = shape->one_sided;
    int n = shape->web + shape->bulk;
    struct conn *conns = calloc((size_t)n, sizeof *conns);
    heap = calloc((size_t)n, sizeof *heap);
    if (!conns || !heap) { perror("calloc"); return 1; }
    for (int i = 0; i < n; i++) {
        int bulk = i >= shape->web;
        struct conn *c = &conns[i];
        *c = (struct conn){
            .client = 0x0a000000u + (uint32_t)(roll() * 500) + 1, .server = 0xc0a80000u + (uint32_t)(roll() * 2000) + 1,
            .port = (uint16_t)(1024 + i % 60000), .service = bulk ? 5201 : 443, .bulk = bulk, .exchanges = 1 + (int)(roll() * 5),
            .ack_every = shape->ack_every, .ending = roll() < 0.9 ? 0 : roll() < 0.5 ? 1 : 2, .t = bulk ? roll() * 0.1 : roll() * 0.1 * shape->web / 10,
            .rtt = bulk ? 0.02 + roll() * 0.04 : 0.005 + roll() * 0.1, .gap = bulk ? (shape->web ? 1.2e-3 : 60e-6 * shape->bulk) : 50e-6,
            .loss = bulk ? 0.0003 : 0.003, .cwnd = 10, .cwnd_max = bulk ? 400 : 100, .seq = {(uint32_t)(roll() * 4e9), (uint32_t)(roll() * 4e9)},
            .ipid = {(uint16_t)(roll() * 65535), (uint16_t)(roll() * 65535)},
        };
        if (!(c->acks = malloc(ACKS * sizeof *c->acks))) { perror("malloc"); return 1; }
        heap[heaped++] = c;
    }
    for (int i = heaped / 2; i-- > 0;) sift(i);
    while (left && heaped) {
        act(heap[0]);
        if (heap[0]->phase == DONE) {
            free(heap[0]->acks);
            heap[0] = heap[--heaped];
            if (!heaped) break;
        }
        sift(0);
    }
    if (left) fprintf(stderr, "%llu packets fewer than asked for\n", (unsigned long long)left);
    return fclose(out) ? 1 : 0;
}
