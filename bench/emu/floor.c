/* The floor: the least that a link emulator in user space can do.
 *
 * Two TUN devices in two network namespaces; what is read from one is written to the other after a fixed delay, and,
 * where a rate is given, no faster than that. One thread, epoll and one timerfd; a packet is read into the place from
 * which it is written. No queue discipline, no log, no counters but one: what an emulator costs beyond this is its own.
 *
 *   floor NS_A DEVICE_A NS_B DEVICE_B DELAY_US RATE_BPS BUFFER_BYTES TXQUEUELEN OFFLOAD FIFO
 *
 * RATE_BPS 0: none. OFFLOAD 1: packets of up to 64 KB pass with their virtio header. FIFO 1: SCHED_FIFO.
 * Prints `ready`, works until SIGTERM or the end of its standard input, then prints one line of JSON.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define ARENA (256u << 20) /* bytes in flight per direction: 20 ms at 100 Gbit/s, or what a late writer lets wait */
#define LARGEST (65536 + 64)
#define BATCH 32           /* packets read before what is due is written */
#define HEADER 10          /* struct virtio_net_hdr */

/* A packet in flight; `length` bytes follow. Length 0: the rest of the arena is unused, go on at its beginning. */
struct record {
    uint64_t due;
    uint32_t length, next;
};

struct direction {
    int from, to;
    uint8_t *arena;
    uint32_t head, tail, count;
    uint64_t free_at; /* when the link has sent all that it was given */
    uint64_t packets, dropped, refused;
};

static uint64_t delay_ns, rate_bps, buffer_bytes;
static int offload;
static volatile sig_atomic_t stopped;

static void on_signal(int signal_number) {
    (void)signal_number;
    stopped = 1;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int open_tun(const char *namespace, const char *name, int txqueuelen) {
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    int own = open("/proc/self/ns/net", O_RDONLY), there = open(path, O_RDONLY);
    if (own < 0 || there < 0 || setns(there, CLONE_NEWNET)) die(namespace);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq request = {0};
    snprintf(request.ifr_name, IFNAMSIZ, "%s", name);
    request.ifr_flags = IFF_TUN | IFF_NO_PI | (offload ? IFF_VNET_HDR : 0);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request)) die("TUNSETIFF");
    if (offload && ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) die("TUNSETOFFLOAD");
    int control = socket(AF_INET, SOCK_DGRAM, 0);
    request.ifr_qlen = txqueuelen;
    if (ioctl(control, SIOCSIFTXQLEN, &request)) die("SIOCSIFTXQLEN");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    if (ioctl(control, SIOCSIFFLAGS, &request)) die("SIOCSIFFLAGS");
    close(control);
    if (setns(own, CLONE_NEWNET)) die("setns");
    close(own);
    close(there);
    return fd;
}

/* A place for a packet of any size in one piece; null when the arena is full. */
static struct record *room(struct direction *d) {
    uint32_t need = sizeof(struct record) + LARGEST;
    if (d->count == 0) d->head = d->tail = 0;
    if (d->tail >= d->head) {
        if (ARENA - d->tail >= need + sizeof(struct record)) return (struct record *)(d->arena + d->tail);
        if (d->head <= need) return NULL;
        ((struct record *)(d->arena + d->tail))->length = 0;
        d->tail = 0;
    }
    return d->head - d->tail > need ? (struct record *)(d->arena + d->tail) : NULL;
}

static struct record *oldest(struct direction *d) {
    if (d->count == 0) return NULL;
    struct record *r = (struct record *)(d->arena + d->head);
    if (r->length == 0) {
        d->head = 0;
        r = (struct record *)d->arena;
    }
    return r;
}

static void take(struct direction *d) {
    for (int i = 0; i < BATCH; i++) {
        static uint8_t lost[LARGEST];
        struct record *r = room(d);
        ssize_t length = read(d->from, r ? (uint8_t *)(r + 1) : lost, LARGEST);
        if (length <= 0) return;
        d->packets++;
        uint64_t t = now_ns();
        uint64_t sent = d->free_at > t ? d->free_at : t;
        if (rate_bps) {
            uint64_t bytes = length - (offload ? HEADER : 0);
            if ((double)(sent - t) * rate_bps / 8e9 + bytes > buffer_bytes) r = NULL;
            sent += bytes * 8000000000ull / rate_bps;
        }
        if (!r) {
            d->dropped++;
            continue;
        }
        if (rate_bps) d->free_at = sent;
        r->due = sent + delay_ns;
        r->length = length;
        r->next = (d->tail + sizeof(struct record) + length + 7) & ~7u;
        d->tail = r->next;
        d->count++;
    }
}

/* Writes what is due; when the next packet is. */
static uint64_t give(struct direction *d) {
    struct record *r;
    while ((r = oldest(d))) {
        if (r->due > now_ns()) return r->due;
        if (write(d->to, r + 1, r->length) < 0) d->refused++;
        d->head = r->next;
        d->count--;
    }
    return UINT64_MAX;
}

int main(int count, char **argument) {
    if (count != 11) {
        fprintf(stderr, "usage: floor NS_A DEVICE_A NS_B DEVICE_B DELAY_US RATE_BPS BUFFER_BYTES TXQUEUELEN OFFLOAD FIFO\n");
        return 2;
    }
    delay_ns = strtoull(argument[5], NULL, 10) * 1000;
    rate_bps = strtoull(argument[6], NULL, 10);
    buffer_bytes = strtoull(argument[7], NULL, 10);
    offload = atoi(argument[9]);
    struct direction both[2] = {0};
    both[0].from = both[1].to = open_tun(argument[1], argument[2], atoi(argument[8]));
    both[1].from = both[0].to = open_tun(argument[3], argument[4], atoi(argument[8]));
    for (int i = 0; i < 2; i++) {
        both[i].arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (both[i].arena == MAP_FAILED) die("mmap");
    }
    struct sched_param priority = {.sched_priority = 10};
    if (atoi(argument[10]) && sched_setscheduler(0, SCHED_FIFO, &priority)) die("SCHED_FIFO");
    prctl(PR_SET_TIMERSLACK, 1);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);

    int poll_fd = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    int watched[] = {both[0].from, both[1].from, timer, 0};
    for (int i = 0; i < 4; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        /* a standard input that is a plain file cannot be watched, and never ends while we look */
        if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, watched[i], &event) && i < 3) die("epoll_ctl");
    }
    printf("ready\n");
    fflush(stdout);
    uint64_t armed = 0;
    while (!stopped) {
        take(&both[0]);
        uint64_t first = give(&both[0]);
        take(&both[1]);
        uint64_t second = give(&both[1]);
        uint64_t due = first < second ? first : second;
        if (due != UINT64_MAX && due != armed) {
            struct itimerspec when = {.it_value = {due / 1000000000, due % 1000000000}};
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
            armed = due;
        }
        struct epoll_event events[4];
        int n = epoll_wait(poll_fd, events, 4, -1);
        for (int i = 0; i < n; i++) {
            uint64_t expired;
            char word[64];
            if (events[i].data.u32 == 2 && read(timer, &expired, sizeof expired) < 0 && errno != EAGAIN) die("timerfd");
            if (events[i].data.u32 == 3 && read(0, word, sizeof word) <= 0) stopped = 1;
        }
    }
    printf("{\"packets\":[%lu,%lu],\"dropped\":[%lu,%lu],\"refused\":[%lu,%lu]}\n", both[0].packets, both[1].packets,
           both[0].dropped, both[1].dropped, both[0].refused, both[1].refused);
    return 0;
}
