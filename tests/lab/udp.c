/* A UDP sender and a receiver that measure a path: rate, loss, one-way delay.
 *
 *   udp send ADDRESS[,ADDRESS…] PORT PACKETS_PER_S BYTES SECONDS [BURST]
 *   udp receive PORT IDLE_S MAX_S ORIGIN_NS
 *
 * BYTES is the length of the IP packet. With several addresses they are served in turn: flow 0, 1, …
 * BURST packets are sent at once at the beginning.
 *
 * signal: each packet carries its number, its flow and CLOCK_MONOTONIC just before it is handed to the kernel; the
 *         kernel stamps its arrival (SO_TIMESTAMPNS), so that the delay does not contain how late this program woke up
 * model:  stamps are of CLOCK_REALTIME; the offset between the clocks is taken again for each batch
 * action: one line of JSON: counts, what the socket dropped, quantiles and histogram of the delay to the microsecond,
 *         bytes per millisecond since ORIGIN_NS, bytes per flow, first and last arrival
 *
 * Neither wakes up for each packet: the sender sends what has fallen due every 50 us, the receiver empties its socket
 * every half millisecond. So both together take a small part of a core at 100,000 packets/s.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sock_diag.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x756e626cu
#define HEADERS 28 /* IPv4 and UDP */
#define BATCH 256
#define STAMPED 16
#define FLOWS 1024
#define BINS 600000    /* milliseconds */
#define SPAN 2000000   /* microseconds of delay, one counter each */
#define TICK_NS 50000  /* the sender's; 5 packets at 100,000/s */
#define BUFFER (256 << 20)

struct content {
    uint32_t magic, flow;
    uint64_t number, sent_ns;
} __attribute__((packed));

static volatile sig_atomic_t stopped;

static void on_signal(int signal_number) {
    (void)signal_number;
    stopped = 1;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* From CLOCK_MONOTONIC to CLOCK_REALTIME. Read again where something came in between: it would look like a delay. */
static uint64_t clock_offset(uint64_t *now) {
    uint64_t real, after, tries = 0;
    do {
        *now = clock_ns(CLOCK_MONOTONIC);
        real = clock_ns(CLOCK_REALTIME);
        after = clock_ns(CLOCK_MONOTONIC);
    } while (after - *now > 1000 && tries++ < 100);
    return real - (*now + (after - *now) / 2);
}

static void sleep_until(uint64_t t) {
    struct timespec when = {t / 1000000000, t % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
}

static int make_socket(int option) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0), size = BUFFER;
    if (fd < 0) die("socket");
    if (setsockopt(fd, SOL_SOCKET, option, &size, sizeof size)) {
        int plain = option == SO_SNDBUFFORCE ? SO_SNDBUF : SO_RCVBUF;
        setsockopt(fd, SOL_SOCKET, plain, &size, sizeof size);
    }
    return fd;
}

static int send_all(char **argument, int count) {
    static struct sockaddr_in to[FLOWS];
    int flows = 0, port = atoi(argument[1]);
    for (char *word = strtok(argument[0], ","); word && flows < FLOWS; word = strtok(NULL, ",")) {
        to[flows].sin_family = AF_INET;
        to[flows].sin_port = htons(port);
        if (inet_pton(AF_INET, word, &to[flows++].sin_addr) != 1) die(word);
    }
    double every_ns = 1e9 / atof(argument[2]);
    size_t bytes = atoi(argument[3]);
    uint64_t length_ns = atof(argument[4]) * 1e9, burst = count > 5 ? strtoull(argument[5], NULL, 10) : 0;
    if (flows == 0 || bytes < HEADERS + sizeof(struct content) || bytes > 65535) {
        fprintf(stderr, "udp: a packet has at least %zu bytes\n", HEADERS + sizeof(struct content));
        return 2;
    }
    int fd = make_socket(SO_SNDBUFFORCE);
    uint8_t *data = calloc(BATCH, bytes);
    static struct iovec parts[BATCH];
    static struct mmsghdr messages[BATCH];
    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){data + i * bytes, bytes - HEADERS};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1, .msg_namelen = sizeof to[0]};
    }
    prctl(PR_SET_TIMERSLACK, 1);
    uint64_t begin = clock_ns(CLOCK_MONOTONIC), end = begin + length_ns, sent = 0, errors = 0, late = 0;
    double due = begin;
    while (!stopped) {
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        if (now >= end) break;
        /* after a long absence go on from here: the test is of a rate, and not of a burst */
        if (now > due + 1e7) {
            late += now - due;
            due = now;
        }
        int n = 0;
        while ((burst || due <= now) && n < BATCH) {
            if (burst) burst--;
            else due += every_ns;
            n++;
        }
        for (int done = 0; done < n;) {
            /* few at a time, so that a stamp is not old when its packet goes */
            int few = n - done < STAMPED ? n - done : STAMPED;
            for (int i = done; i < done + few; i++) {
                struct content c = {MAGIC, (sent + i) % flows, sent + i, clock_ns(CLOCK_MONOTONIC)};
                memcpy(data + i * bytes, &c, sizeof c);
                messages[i].msg_hdr.msg_name = &to[c.flow];
            }
            for (int last = done + few; done < last;) {
                int k = sendmmsg(fd, messages + done, last - done, 0);
                if (k > 0) done += k;
                if (k < 0 && errno != EINTR) {
                    errors++;
                    done++;
                }
            }
        }
        sent += n;
        if (n < BATCH) sleep_until(due > now + TICK_NS ? (uint64_t)due : now + TICK_NS);
    }
    uint64_t took = clock_ns(CLOCK_MONOTONIC) - begin;
    printf("{\"sent\":%lu,\"errors\":%lu,\"seconds\":%.6f,\"late_ms\":%.3f,\"begin_ns\":%lu,\"flows\":%d}\n", sent, errors,
           took / 1e9, late / 1e6, begin, flows);
    return 0;
}

static uint32_t delays[SPAN + 1], per_ms[BINS];
static uint64_t per_flow[FLOWS];

static double quantile(uint64_t of, double q) {
    uint64_t below = 0, wanted = q * of;
    for (int i = 0; i <= SPAN; i++) {
        below += delays[i];
        if (below > wanted) return i / 1e3;
    }
    return SPAN / 1e3;
}

static int receive_all(char **argument) {
    int port = atoi(argument[0]), on = 1;
    uint64_t idle = atof(argument[1]) * 1e9, longest = atof(argument[2]) * 1e9;
    uint64_t origin = strtoull(argument[3], NULL, 10);
    int fd = make_socket(SO_RCVBUFFORCE);
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(port)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on)) die("SO_TIMESTAMPNS");
    if (bind(fd, (struct sockaddr *)&own, sizeof own)) die("bind");
    static uint8_t data[BATCH][sizeof(struct content)], control[BATCH][64];
    static struct iovec parts[BATCH];
    static struct mmsghdr messages[BATCH];
    prctl(PR_SET_TIMERSLACK, 1);
    printf("ready\n");
    fflush(stdout);
    uint64_t begin = clock_ns(CLOCK_MONOTONIC), last_seen = 0, received = 0, bytes = 0, first = 0, last = 0, overtaken = 0;
    uint64_t next_number = 0, first_bytes = 0, last_bin = 0, longest_gap = 0;
    double sum = 0, squares = 0, least = 1e18, most = 0;
    while (!stopped) {
        for (int i = 0; i < BATCH; i++) {
            parts[i] = (struct iovec){data[i], sizeof data[i]};
            messages[i].msg_hdr = (struct msghdr){
                .msg_iov = &parts[i], .msg_iovlen = 1, .msg_control = control[i], .msg_controllen = sizeof control[i]};
        }
        /* MSG_TRUNC: the whole length is returned although only the head is copied */
        int n = recvmmsg(fd, messages, BATCH, MSG_DONTWAIT | MSG_TRUNC, NULL);
        uint64_t now, offset = clock_offset(&now);
        for (int i = 0; i < n; i++) {
            struct content c;
            uint64_t arrived = now;
            struct msghdr *header = &messages[i].msg_hdr;
            for (struct cmsghdr *m = CMSG_FIRSTHDR(header); m; m = CMSG_NXTHDR(header, m)) {
                if (m->cmsg_level != SOL_SOCKET || m->cmsg_type != SCM_TIMESTAMPNS) continue;
                struct timespec stamp;
                memcpy(&stamp, CMSG_DATA(m), sizeof stamp);
                arrived = stamp.tv_sec * 1000000000ull + stamp.tv_nsec - offset;
            }
            memcpy(&c, data[i], sizeof c);
            if (messages[i].msg_len < sizeof c || c.magic != MAGIC) continue;
            uint64_t length = messages[i].msg_len + HEADERS;
            double delay = (double)arrived - (double)c.sent_ns;
            uint64_t us = delay < 0 ? 0 : delay / 1e3;
            delays[us < SPAN ? us : SPAN]++;
            sum += delay;
            squares += delay * delay;
            if (delay < least) least = delay;
            if (delay > most) most = delay;
            if (c.number < next_number) overtaken++;
            next_number = c.number + 1 > next_number ? c.number + 1 : next_number;
            if (received++ == 0) {
                first = arrived;
                first_bytes = length;
            } else if (arrived > last && arrived - last > longest_gap) {
                longest_gap = arrived - last;
            }
            bytes += length;
            last = arrived;
            per_flow[c.flow % FLOWS] += length;
            uint64_t bin = arrived > origin ? (arrived - origin) / 1000000 : BINS;
            if (bin < BINS) {
                per_ms[bin] += length;
                if (bin > last_bin) last_bin = bin;
            }
        }
        if (n > 0) last_seen = now;
        if (now - begin > longest || (last_seen && now - last_seen > idle)) break;
        if (n < BATCH) sleep_until(now + 500000);
    }
    uint32_t memory[SK_MEMINFO_VARS] = {0};
    socklen_t size = sizeof memory;
    getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &size);
    double mean = received ? sum / received : 0, variance = received ? squares / received - mean * mean : 0;
    printf("{\"received\":%lu,\"bytes\":%lu,\"first_bytes\":%lu,\"first_ns\":%lu,\"last_ns\":%lu,\"overtaken\":%lu,"
           "\"socket_drops\":%u,\"longest_gap_ms\":%.3f,",
           received, bytes, first_bytes, first, last, overtaken, memory[SK_MEMINFO_DROPS], longest_gap / 1e6);
    printf("\"delay_ms\":{\"mean\":%.4f,\"variance\":%.6f,\"min\":%.4f,\"p50\":%.3f,\"p99\":%.3f,\"p999\":%.3f,\"max\":%.4f},",
           mean / 1e6, variance / 1e12, received ? least / 1e6 : 0, quantile(received, .5), quantile(received, .99),
           quantile(received, .999), most / 1e6);
    printf("\"histogram_us\":[");
    const char *comma = "";
    for (int i = 0; i <= SPAN; i++) {
        if (delays[i]) {
            printf("%s[%d,%u]", comma, i, delays[i]);
            comma = ",";
        }
    }
    printf("],\"per_flow\":[");
    int flows = 0;
    for (int i = 0; i < FLOWS; i++) {
        if (per_flow[i]) flows = i + 1;
    }
    for (int i = 0; i < flows; i++) printf("%s%lu", i ? "," : "", per_flow[i]);
    printf("],\"per_ms\":[");
    for (uint64_t i = 0; received && origin && i <= last_bin; i++) printf("%s%u", i ? "," : "", per_ms[i]);
    printf("]}\n");
    return 0;
}

int main(int count, char **argument) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    if (count >= 7 && !strcmp(argument[1], "send")) return send_all(argument + 2, count - 2);
    if (count == 6 && !strcmp(argument[1], "receive")) return receive_all(argument + 2);
    fprintf(stderr, "usage: udp send ADDRESS[,ADDRESS] PORT PACKETS_PER_S BYTES SECONDS [BURST]\n"
                    "       udp receive PORT IDLE_S MAX_S ORIGIN_NS\n");
    return 2;
}
